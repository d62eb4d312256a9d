"""What a promise costs: each acks level on each persistence level.

`memory` keeps nothing; `disk` hands the bytes to the kernel, where they survive the process; `fsync` and acks=all on a
single broker wait for the disk, where they survive the machine. A request is 16 KB, and 32 are under way: appends can
share an fsync. Beside each line stands the weakest promise, acks=none in memory.
"""

from __future__ import annotations

from benchmarks.load import Stream
from benchmarks.measurement import Load, effort, load_row, measure
from benchmarks.native import Bench, Shape, WriterWithoutAnswers, produce_bytes, shape, writer
from benchmarks.processes import Measured, broker
from benchmarks.row import Row
from flymq.model.delivery import Acks, Persistence

_PROMISES = [(acks, level) for level in Persistence for acks in (Acks.NONE, Acks.LEADER, Acks.ALL)]
_INFLIGHT = 32


def run(quick: bool = False) -> list[Row]:
    planned, batches = effort(quick, 24 << 20), shape(100, 16 << 10)
    loads: dict[tuple[Acks, Persistence], list[Load]] = {promise: [] for promise in _PROMISES}
    with broker() as ours:
        bench = Bench(ours.port)
        for _ in range(planned.rounds):
            for promise in _PROMISES:
                loads[promise].append(_produce(bench, ours, batches, planned.batches(batches.payload_bytes), promise))
        bench.close()
    weakest = loads[_PROMISES[0]]
    return [
        load_row(
            f"acks={acks.name.lower()}, {level.value}", loads[acks, level], peer="acks=none, memory", beside=weakest
        )
        for acks, level in _PROMISES
    ]


def _produce(bench: Bench, ours: Measured, batches: Shape, count: int, promise: tuple[Acks, Persistence]) -> Load:
    acks, level = promise
    topic = bench.topic(settings={"persistence": level.value})
    request = produce_bytes(topic, 0, batches.batch, acks)
    stream: Stream
    if acks is Acks.NONE:
        stream = WriterWithoutAnswers(bench.connect(), request, count)
    else:
        stream = writer(bench.connect(), request, count, inflight=_INFLIGHT)
    load = measure(ours, [stream], count * batches.records)
    bench.check_written(topic, count * batches.records)
    bench.drop(topic)
    return load
