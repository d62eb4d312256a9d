"""A Spring Boot application with listeners, transactions, retry topics and dead letters."""

import pytest


@pytest.mark.shows("transactions: commit and abort", client="Spring")
@pytest.mark.shows("consume, transform, produce", client="Spring")
def test_spring_copies_in_transactions_retries_by_topics_and_keeps_dead_letters(server, topic, spring):
    assert spring.run("orders.Orders", server.address, topic) == [
        "rolled back",
        "10 payments, 21 attempts",
        "dead letter: payment of order 5 in -payments-dlt",
    ]
