"""FlyMQ itself, in the three ways its peers are used: batches, one message a request, and Kafka's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from benchmarks.deliveries import Courier
from benchmarks.load import Stream, connect
from benchmarks.native import Bench, NativeCourier, Reader, Shape, produce_bytes, shape, writer
from benchmarks.peers.contender import MESSAGE_BYTES, UNDER_WAY, Contender, Promise
from benchmarks.peers.kafka_topic import KafkaTopic
from benchmarks.processes import broker
from flymq.wire.native.messages.session import Ping

BATCHES = "FlyMQ"
SINGLE = "FlyMQ, one message a request"
AS_KAFKA = "FlyMQ, Kafka's protocol"
WAYS = (BATCHES, SINGLE, AS_KAFKA)
_BATCH_BYTES = 16 << 10
_PERSISTENCE = {Promise.PROCESS: "disk", Promise.MACHINE: "fsync"}


class FlyMQ:
    name = "FlyMQ"

    def missing(self) -> str | None:
        return None

    def install(self) -> None:
        """It is what is being measured: nothing to fetch."""

    def version(self) -> str:
        return metadata.version("flymq")

    @contextmanager
    def running(self, promise: Promise, folder: Path) -> Iterator[list[Contender]]:
        persistence = _PERSISTENCE[promise]
        with broker(folder) as measured:
            bench = Bench(measured.port)
            bench.ask(Ping())  # a connection that says nothing is closed while the peers start
            settings = f"persistence={persistence}, acks=leader"
            ways: dict[str, Callable[[], NativeTopic | KafkaTopic]] = {
                BATCHES: lambda: NativeTopic(bench, persistence, shape(MESSAGE_BYTES, _BATCH_BYTES)),
                SINGLE: lambda: NativeTopic(bench, persistence, shape(MESSAGE_BYTES, 1)),
                AS_KAFKA: lambda: _kafka_topic(bench, persistence),
            }
            yield [Contender(name, settings, measured, way) for name, way in ways.items()]
            bench.close()


def _kafka_topic(bench: Bench, persistence: str) -> KafkaTopic:
    topic = bench.topic(settings={"persistence": persistence})
    return KafkaTopic(bench.port, topic, lambda: bench.drop(topic))


class NativeTopic:
    """A topic over FlyMQ's own protocol. What was written in single messages is read as it lies in the log."""

    def __init__(self, bench: Bench, persistence: str, batches: Shape) -> None:
        self._bench = bench
        self._batches = batches
        self._name = bench.topic(settings={"persistence": persistence})

    def producers(self, messages: int) -> Sequence[Stream]:
        request = produce_bytes(self._name, 0, self._batches.batch)
        count = messages // self._batches.records
        return [writer(connect(self._bench.port), request, count, inflight=UNDER_WAY // self._batches.records)]

    def consumers(self, messages: int) -> Sequence[Stream]:
        whole = messages // self._batches.records * self._batches.records
        return [Reader(connect(self._bench.port), self._name, 0, self._batches, whole)]

    def courier(self) -> Courier:
        return NativeCourier(self._bench, self._name)

    def close(self) -> None:
        self._bench.drop(self._name)
