"""Apache Kafka's own producer in transactions, with and without KIP-890. Skipped where Java or its jars are missing."""

import urllib.request

import pytest
from tests.clients.kafka import java

from flymq import FlyMQClient

ABORTED = {  # what a producer gets for its commit and for a batch after the broker has aborted
    "4.3.1": ["TransactionAbortableException", "TransactionAbortableException"],
    "3.9.1": ["UnknownProducerIdException", "InvalidPidMappingException"],
}


@pytest.mark.shows("transactions: commit and abort", client="Java")
@pytest.mark.shows("transactions: go on after the broker has aborted one", client="Java")
@pytest.mark.parametrize("version", java.VERSIONS)
def test_the_java_producer_commits_aborts_and_goes_on_after_the_broker_has_aborted(broker, topic, version):
    jars = java.find_jars(version)
    if jars is None:
        pytest.skip(java.MISSING)
    with FlyMQClient(broker.address) as client:
        client.create_topic(topic, partitions=1)
    program = java.start(jars, "Transactions", broker.address, topic)
    assert program.stdin is not None
    assert program.stdout is not None
    told = []
    for line in program.stdout:
        told.append(line.strip())
        if told[-1] == "waiting":
            url = f"http://{broker.address}/api/v1/transactions/writer-of-{topic}/abort"
            with urllib.request.urlopen(urllib.request.Request(url, method="POST")):
                program.stdin.write("\n")
                program.stdin.flush()
    program.stdin.close()
    program.stdout.close()
    assert program.wait() == 0
    first, second = ABORTED[version]
    assert told == ["waiting", first, "waiting", second, "waiting", "one two three, committed 1"]
