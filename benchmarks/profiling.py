"""Profile the broker: `make profile`, or `python -m benchmarks.profiling produce --seconds 5`.

A broker runs under a load of prepared bytes while py-spy samples its stacks 500 times a second. The output is a flame
graph (SVG) and a table of functions by self time. A system call counts for the function that made it, and idle threads
are excluded from the table.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import kafka_requests
from benchmarks.load import Requests, Stream, connect, drive
from benchmarks.native import Bench, Reader, Shape, produce_bytes, shape, writer
from benchmarks.processes import broker
from benchmarks.row import aligned

RESULTS = Path(__file__).parent / "results"
_SAMPLES_PER_S = 500
_TOP = 25
_ROUND_BYTES = 64 << 20
_WAITING = ("_worker (concurrent/futures", "EpollSelector.select (")
_REFUSED = """py-spy is not permitted to trace the broker's process. One of these permits it:
  sudo sysctl kernel.yama.ptrace_scope=0        until the next reboot
  sudo make profile                             as root
  docker run --cap-add SYS_PTRACE …             in a container"""

Round = Callable[[Bench], Sequence[Stream]]
"""Makes the streams of one round of a load; rounds follow one another until the time is over."""


def _writing(batches: Shape, inflight: int, persistence: str = "disk") -> Round:
    def streams(bench: Bench) -> Sequence[Stream]:
        count = min(20_000, max(50, _ROUND_BYTES // batches.payload_bytes))
        request = produce_bytes(_topic(bench, persistence), 0, batches.batch)
        return [writer(bench.connect(), request, count, inflight=inflight)]

    return streams


def _writing_as_kafka(bench: Bench) -> Sequence[Stream]:
    request = kafka_requests.produce(_topic(bench), 0, shape(100, 16 << 10).batch)
    return [Requests(connect(bench.port), request, 4_000, inflight=8, frames=kafka_requests.frames())]


def _reading(readers: int, bytes_max: int) -> Round:
    batches = shape(100, 16 << 10)

    def streams(bench: Bench) -> Sequence[Stream]:
        topic = _topic(bench)
        records = bench.fill(topic, batches, 100)
        return [Reader(bench.connect(), topic, 0, batches, records, bytes_max=bytes_max) for _ in range(readers)]

    return streams


def _following(batches: Shape, inflight: int) -> Round:
    """A reader that waits at the end of the log while a writer writes."""

    def streams(bench: Bench) -> Sequence[Stream]:
        topic = _topic(bench)
        reader = Reader(bench.connect(), topic, 0, batches, 4_000 * batches.records)
        request = produce_bytes(topic, 0, batches.batch)
        return [reader, writer(bench.connect(), request, 4_000, inflight=inflight)]

    return streams


def _topic(bench: Bench, persistence: str = "disk") -> str:
    return bench.topic(settings={"persistence": persistence, "segment.bytes": 16 << 20})


WORKLOADS: dict[str, Round] = {
    "produce": _writing(shape(100, 16 << 10), 8),
    "produce-small": _writing(shape(100, 1), 64),
    "produce-large": _writing(shape(100, 1 << 20), 2),
    "produce-fsync": _writing(shape(100, 1), 64, "fsync"),
    "kafka-produce": _writing_as_kafka,
    "consume": _reading(40, 1 << 20),
    "consume-small": _reading(40, 32 << 10),
    "both": _following(shape(100, 16 << 10), 8),
    "deliver": _following(shape(500, 1), 1),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profiling", description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS, nargs="?", default="produce")
    parser.add_argument("--seconds", type=int, default=5, help="for each of the flame graph and the table")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where the files go")
    chosen = parser.parse_args(arguments)
    chosen.folder.mkdir(parents=True, exist_ok=True)
    graph, stacks = (chosen.folder / f"profile-{chosen.workload}.{end}" for end in ("svg", "txt"))
    with broker() as measured, _pressed(measured.port, WORKLOADS[chosen.workload]):
        for style, path in (("raw", stacks), ("flamegraph", graph)):
            if reason := _record(measured.pid, chosen.seconds, style, path):
                print(reason, file=sys.stderr)
                return 1
    print(f"{chosen.workload}: share of samples, by function\n{top(stacks.read_text())}\n\n{graph}\n{stacks}")
    return 0


@contextmanager
def _pressed(port: int, streams: Round) -> Iterator[None]:
    """Keep the load up in a thread while the block runs; the broker is another process."""
    ended = threading.Event()

    def press() -> None:
        bench = Bench(port)
        while not ended.is_set():
            drive(streams(bench))
        bench.close()

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _record(pid: int, seconds: int, style: str, path: Path) -> str | None:
    """Sample the process; return why that was not possible."""
    options = ["--pid", str(pid), "--duration", str(seconds), "--rate", str(_SAMPLES_PER_S), "--function"]
    program = Path(sys.executable).with_name("py-spy")
    command: list[str | Path] = [program, "record", *options, "--format", style, "--output", path]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return None
    refused = "ermission" in done.stderr or "ptrace" in done.stderr
    return _REFUSED if refused else done.stderr


def top(stacks: str, count: int = _TOP) -> str:
    """Return the functions with the most samples of their own, and with what they call, from collapsed stacks."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, samples = line.rpartition(" ")
        frames = stack.split(";")
        if frames[-1].startswith(_WAITING):
            continue
        own[frames[-1]] += int(samples)
        for name in set(frames):
            whole[name] += int(samples)
    total = sum(own.values()) or 1
    lines = [("own", "with calls", "function")]
    lines += [(f"{n / total:.1%}", f"{whole[name] / total:.1%}", name) for name, n in own.most_common(count)]
    return aligned(lines, frozenset({"own", "with calls"}))


if __name__ == "__main__":
    sys.exit(main())
