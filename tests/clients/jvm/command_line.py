"""Kafka's command-line tools, by the names of their scripts, and the commands that are tried, in their order.

Each is a row of `outcomes/tools.tsv`. A command works when its exit code is 0 and its output has the words expected. In
arguments, {topic} is a name of this run, {id} the id of the broker, {folder} a place for files, {log} a segment's file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SCRIPTS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shows: str = ""
    """Words, or a regular expression, that the output of a command that worked has."""
    given: str = field(default="", kw_only=True)
    """Its standard input."""

    @property
    def what(self) -> str:
        """The row of the table."""
        return self.line.replace("{", "").replace("}", "")

    def words(self, address: str, names: Mapping[str, object]) -> list[str]:
        """Its script and arguments, with the address where the tool takes it."""
        script, *words = _fill(self.line, names).split()
        if script == "kafka-dump-log":
            return [script, *words]
        bootstrap = ["--bootstrap-server", address]
        return [script, *words, *bootstrap] if script == "kafka-cluster" else [script, *bootstrap, *words]

    def outcome(self, code: int, output: str, names: Mapping[str, object]) -> str:
        """What it ended with; the tools of Kafka print errors and often exit with 0."""
        errors = re.findall(r"(\w+(?:Exception|Error))\b", output)
        if "does not support" in output:
            errors.append("UnsupportedVersionException")
        if code == 0 and re.search(_fill(self.shows, names), output) and not errors:
            return "works"
        return next(iter(dict.fromkeys(error for error in reversed(errors) if error not in _WRAPPERS)), f"exit {code}")


def _fill(text: str, names: Mapping[str, object]) -> str:
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


_WRAPPERS = ("ExecutionException", "RuntimeException", "KafkaException", "AdminCommandFailedException")

COMMANDS = [
    Command("kafka-topics --create --topic {topic} --partitions 2 --config retention.ms=600000", "Created topic"),
    Command("kafka-topics --create --topic {topic} --if-not-exists"),
    Command("kafka-topics --list", "{topic}"),
    Command("kafka-topics --describe --topic {topic}", "PartitionCount: 2"),
    Command("kafka-topics --describe --under-replicated-partitions"),
    Command("kafka-topics --alter --topic {topic} --partitions 3"),
    Command("kafka-configs --describe --entity-type topics --entity-name {topic}", "retention.ms=600000"),
    Command("kafka-configs --describe --all --entity-type topics --entity-name {topic}", "segment.bytes="),
    Command(
        "kafka-configs --alter --entity-type topics --entity-name {topic} --add-config segment.bytes=2000000",
        "Completed",
    ),
    Command(
        "kafka-configs --alter --entity-type topics --entity-name {topic} --delete-config segment.bytes", "Completed"
    ),
    Command("kafka-configs --describe --all --entity-type brokers --entity-name {id}", "log.dirs="),
    Command(
        "kafka-configs --alter --entity-type brokers --entity-name {id} --add-config log.cleaner.threads=1", "Completed"
    ),
    Command(
        "kafka-configs --alter --entity-type groups --entity-name {topic}"
        " --add-config consumer.session.timeout.ms=50000",
        "Completed",
    ),
    Command(
        "kafka-configs --alter --entity-type clients --entity-name {topic} --add-config producer_byte_rate=100000000",
        "Completed",
    ),
    Command(
        "kafka-console-producer --topic {topic} --reader-property parse.key=true", given="a\tone\nb\ttwo\nc\tthree\n"
    ),
    Command(
        "kafka-console-consumer --topic {topic} --from-beginning --max-messages 3 --timeout-ms 20000",
        "Processed a total of 3",
    ),
    Command(
        "kafka-console-consumer --topic {topic} --from-beginning --max-messages 3 --timeout-ms 20000 --group {topic}"
        " --formatter-property print.key=true --formatter-property print.offset=true",
        "Offset:0\ta\tone|Offset:0\tb\ttwo",
    ),
    Command("kafka-configs --describe --entity-type groups --entity-name {topic}", "consumer.session.timeout.ms=50000"),
    Command("kafka-get-offsets --topic {topic}", ":2:"),
    Command("kafka-get-offsets --topic {topic} --time earliest", "{topic}:0:0"),
    Command("kafka-get-offsets --topic {topic} --time max-timestamp", "{topic}:2:0"),
    Command("kafka-consumer-groups --list", "{topic}"),
    Command("kafka-consumer-groups --describe --group {topic}", "CURRENT-OFFSET"),
    Command("kafka-consumer-groups --describe --group {topic} --state", "Empty"),
    Command("kafka-consumer-groups --describe --group {topic} --members", "no active members"),
    Command("kafka-consumer-groups --describe --all-groups", "{topic}"),
    Command(
        "kafka-consumer-groups --reset-offsets --group {topic} --topic {topic} --to-earliest --execute",
        "{topic} +{topic} +0 +0",
    ),
    Command("kafka-consumer-groups --delete-offsets --group {topic} --topic {topic}:0", "Successful"),
    Command("kafka-groups --list", "{topic} +Classic"),
    Command("kafka-delete-records --offset-json-file {folder}/records.json", "low_watermark: 1"),
    Command("kafka-consumer-groups --delete --group {topic}", "was successful"),
    Command("kafka-share-groups --list"),
    Command("kafka-streams-groups --list"),
    Command(
        "kafka-producer-perf-test --topic {topic} --num-records 500 --record-size 100 --throughput -1"
        " --transactional-id {topic}-perf --transaction-duration-ms 100",
        "500 records sent",
    ),
    Command("kafka-transactions list", "{topic}-perf"),
    Command("kafka-transactions describe --transactional-id {topic}-perf", "CompleteCommit"),
    Command("kafka-transactions describe-producers --topic {topic} --partition 0", "ProducerId"),
    Command("kafka-transactions find-hanging --broker-id {id}", "Topic"),
    Command("kafka-log-dirs --describe --topic-list {topic}", '"partition":"{topic}-0"'),
    Command("kafka-cluster cluster-id", "Cluster ID"),
    Command("kafka-cluster list-endpoints", "127.0.0.1"),
    Command("kafka-broker-api-versions", r"Produce\(0\): 0 to"),
    Command("kafka-features describe", "transaction.version"),
    Command("kafka-metadata-quorum describe --status", "LeaderId"),
    Command("kafka-metadata-quorum describe --replication", "Leader"),
    Command(
        "kafka-leader-election --topic {topic} --partition 0 --election-type preferred", "Valid replica already elected"
    ),
    Command("kafka-reassign-partitions --list", "No partition reassignments found|Current partition"),
    Command("kafka-acls --list"),
    Command("kafka-delegation-tokens --describe --command-config {folder}/empty"),
    Command("kafka-client-metrics --list"),
    Command("kafka-e2e-latency --topic {topic} --num-records 20 --producer-acks all --record-size 100", "Percentiles"),
    Command("kafka-consumer-perf-test --topic {topic} --num-records 500 --timeout 20000", "nMsg.sec"),
    Command("kafka-dump-log --files {log} --print-data-log", "starting offset: 0(.|\n)*payload"),
    Command(
        "kafka-streams-application-reset --application-id {topic}-app --input-topics {topic} --dry-run", "Reset-offsets"
    ),
    Command("kafka-topics --delete --topic {topic}"),
]
