"""Apache Kafka's own client for Java, the newest and the last one without KIP-890. Skipped where it cannot be had."""

import urllib.request

import pytest
from tests.clients.servers import FLYMQ

from flymq import FlyMQClient

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = [
    *(f"{codec}: 200 acknowledged in order" for codec in CODECS),
    "read {gzip=200, lz4=200, none=200, snappy=200, zstd=200} null=null large=900000, lag 0",
    "begins at 0, ends at 1002, time 500 is 500, partitions 1, listed true",
    "sought to 1000",
]
SHARED = [
    "alone: 4 partitions, 100 records",
    "together: 2 and 2 partitions, 200 records",
    "alone again: 4 partitions, 0 records twice",
    "goes on: 300 records, 0 twice",
]
ABORTED = {  # what a producer gets for its commit and for a batch after the broker has aborted
    "kafka4": ["TransactionAbortableException", "TransactionAbortableException"],
    "kafka3": ["UnknownProducerIdException", "InvalidPidMappingException"],
}


@pytest.mark.shows("codecs", client="Java")
@pytest.mark.shows("keys, headers, nulls and times", client="Java")
@pytest.mark.shows("large messages", client="Java")
@pytest.mark.shows("idempotent producer", client="Java")
def test_the_java_client_writes_with_every_codec_and_reads_by_offset_and_time(server, topic, java):
    assert java.run("Records", server.address, topic) == RECORDS


@pytest.mark.shows("groups: members join and leave", client="Java")
@pytest.mark.shows("groups: go on where they committed", client="Java")
@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_java_members_of_a_classic_group_share_partitions_and_go_on_where_they_committed(server, topic, java, assignor):
    strategy = f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{assignor}"
    assert java.run("Groups", server.address, topic, "share", "heartbeat.interval.ms=500", strategy) == SHARED


@pytest.mark.shows("groups: group.protocol=consumer", client="Java")
def test_java_members_of_a_group_of_the_new_protocol_share_partitions_and_go_on_where_they_committed(
    server, topic, kafka4
):
    assert kafka4.run("Groups", server.address, topic, "share", "group.protocol=consumer") == SHARED


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_consumer_commits_for_a_group_without_being_a_member(server, topic, kafka4, protocol):
    told = kafka4.run("Groups", server.address, topic, "assign", f"group.protocol={protocol}")
    assert told == ["assigned: committed 7 seven"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_java_consumer_subscribes_by_a_pattern(server, topic, kafka4, protocol):
    told = kafka4.run("Groups", server.address, topic, "pattern", f"group.protocol={protocol}")
    assert told == ["pattern: 4 partitions, 100 records"]


@pytest.mark.shows("transactions: commit and abort", client="Java")
@pytest.mark.shows("transactions: go on after the broker has aborted one", client="Java")
@pytest.mark.parametrize("version", ["kafka4", "kafka3"])
def test_the_java_producer_commits_aborts_and_goes_on_after_the_broker_has_aborted(server, topic, version, request):
    if server.name != FLYMQ:
        pytest.skip("only FlyMQ aborts a transaction on request of a third party")
    java = request.getfixturevalue(version)
    with FlyMQClient(server.address) as client:
        client.create_topic(topic, partitions=1)
    told = []
    with java.start("Transactions", server.address, topic) as program:
        for line in program.stdout:
            told.append(line.strip())
            if told[-1] == "waiting":
                url = f"http://{server.address}/api/v1/transactions/writer-of-{topic}/abort"
                with urllib.request.urlopen(urllib.request.Request(url, method="POST")):
                    program.stdin.write("\n")
        assert program.wait() == 0
    first, second = ABORTED[version]
    assert told == ["waiting", first, "waiting", second, "waiting", "one two three, committed 1"]
