"""Topics of a cluster, over Kafka's protocol: created, waited for, loaded with prepared bytes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, PartitionMetadata
from confluent_kafka.cimpl import NewTopic

from benchmarks import kafka_requests as kafka
from benchmarks.cluster.members import Running
from benchmarks.load import Requests, Stream, connect
from benchmarks.native import Shape

ALL, LEADER = -1, 1
"""Values of acks on the wire."""
PARTITIONS_MAX = 500
"""Of one topic."""
_WITHIN_S = 120.0
_LOOK_S = 0.05
_numbers = itertools.count()


class Topics:
    """Creates topics in a cluster, and looks at them."""

    def __init__(self, cluster: Running) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.addresses, "log_level": 0})

    def until_all_have_joined(self) -> None:
        count = len(self._cluster.members)
        until(lambda: len(self._admin.list_topics(timeout=30).brokers) == count, "all brokers have joined")

    @contextmanager
    def topic(self, partitions: int, *, replicas: int, settings: Mapping[str, str] | None = None) -> Iterator[str]:
        """Return a new topic, with all its replicas in sync; it is deleted at the end of the block."""
        name = f"bench-{next(_numbers)}"
        config = {"min.insync.replicas": str(min(2, replicas)), **(settings or {})}
        self._admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result()
        self.until_in_sync(name, partitions, replicas)
        try:
            yield name
        finally:
            self._admin.delete_topics([name])[name].result()

    @contextmanager
    def topics(
        self, partitions: int, *, replicas: int, settings: Mapping[str, str] | None = None
    ) -> Iterator[list[str]]:
        """Return new topics that have so many partitions together: one topic cannot have any number."""
        sizes = [min(PARTITIONS_MAX, partitions - made) for made in range(0, partitions, PARTITIONS_MAX)]
        with ExitStack() as stack:
            yield [stack.enter_context(self.topic(size, replicas=replicas, settings=settings)) for size in sizes]

    def partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        found: Mapping[int, PartitionMetadata] = self._admin.list_topics(topic, timeout=30).topics[topic].partitions
        return found

    def leaders(self, topic: str) -> list[int]:
        """Return the broker that leads each partition; -1 if none does."""
        return [found.leader for _, found in sorted(self.partitions(topic).items())]

    def until_in_sync(self, topic: str, partitions: int, replicas: int) -> None:
        """Wait until every partition has a leader, and all replicas are in sync."""

        def is_in_sync() -> bool:
            found = self.partitions(topic).values()
            are_all = len(found) == partitions
            return are_all and all(each.leader > 0 and len(each.isrs) == replicas for each in found)

        until(is_in_sync, f"all replicas of {topic} are in sync")

    def end_offsets(self, topic: str) -> int:
        """Return how many records are committed, in all partitions together, when all leaders know that they lead."""
        found: list[int] = []

        def are_known() -> bool:
            wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in self.partitions(topic)}
            try:
                found[:] = [each.result().offset for each in self._admin.list_offsets(wanted).values()]
            except KafkaException:
                return False
            return True

        until(are_known, f"the leaders of {topic} tell its end")
        return sum(found)

    def check_written(self, topic: str, records: int) -> None:
        """Rejected load does not count."""
        until(lambda: self.end_offsets(topic) == records, f"{records} records are in {topic}")

    def writers(
        self, topic: str, partitions: Sequence[int], batches: Shape, count: int, *, acks: int, inflight: int = 4
    ) -> list[Stream]:
        """Return a connection for each partition, to its leader, that sends so many batches."""
        leaders = self.leaders(topic)
        return [
            Requests(
                connect(self._cluster.members[leaders[number]].port),
                kafka.produce(topic, number, batches.batch, acks),
                count,
                inflight=inflight,
                frames=kafka.frames(),
            )
            for number in partitions
        ]


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not within {_WITHIN_S:.0f} s: {what}")
        time.sleep(_LOOK_S)
