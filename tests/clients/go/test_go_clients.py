"""Go's clients, franz-go, sarama and kafka-go: admin, groups and, where they have them, transactions."""

import subprocess

import pytest

TOLD = [
    "created: 4 partitions",
    "shared: all records read, by both members",
    "went on: all records read, 0 again",
    "group listed: true",
    "transactions: one two",
    "deleted: true",
]


def told_by(program, client: str, address: str) -> list[str]:
    command = [program, client, address, f"of-{client}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.shows("idempotent producer", by="client")
@pytest.mark.shows("transactions: commit and abort", by="client")
@pytest.mark.shows("groups: members join and leave", by="client")
@pytest.mark.shows("groups: go on where they committed", by="client")
@pytest.mark.shows("admin", by="client")
@pytest.mark.parametrize("client", ["franz-go", "sarama"])
def test_a_go_client_shares_a_group_and_writes_in_transactions(server, program, client):
    assert told_by(program, client, server.address) == TOLD


@pytest.mark.shows("groups: members join and leave", client="kafka-go")
@pytest.mark.shows("groups: go on where they committed", client="kafka-go")
@pytest.mark.shows("admin", client="kafka-go")
def test_kafka_go_which_has_no_transactions_shares_a_group(server, program):
    assert told_by(program, "kafka-go", server.address) == [line for line in TOLD if "transactions" not in line]
