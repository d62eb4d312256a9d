"""The processes of a cluster: each can be killed, paused, stopped and started again on its port and data."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port

from benchmarks.peers.contender import await_port
from benchmarks.peers.kafka import Kafka
from benchmarks.processes import Measured
from benchmarks.watched_broker import Longest, WatchedBroker

BROKERS = 3


@dataclass
class Member:
    """One broker of a cluster."""

    broker_id: int
    port: int
    command: Sequence[str | Path]
    folder: Path
    is_watched: bool = False
    """Whether it tells how long the iterations of its event loop are."""
    process: subprocess.Popen[str] = field(init=False)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.folder.mkdir(exist_ok=True)
        log = self.folder / "output.log"
        pipe = subprocess.PIPE if self.is_watched else None
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=pipe,
                stdout=pipe or output,
                stderr=output,
                cwd=None if self.is_watched else self.folder,  # Kafka writes its own logs there
                text=True,
            )
        if self.is_watched:
            self._watched = WatchedBroker(self.process)
        await_port(self.process, self.port, log)

    @property
    def measured(self) -> Measured:
        return Measured(self.process.pid, self.port)

    def take_longest(self) -> Longest:
        """Return what was longest in its event loop since the last call."""
        return self._watched.take()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to stop; it hands over what it leads first."""
        self.process.terminate()

    def close(self) -> None:
        if self.process.poll() is None:
            self.resume()
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster, and what else belongs to it."""

    name: str
    members: Mapping[int, Member]
    store: Measured | None = None
    """The process that serves the metadata: Kafka's brokers do that themselves."""

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members.values())

    @property
    def cpu_s(self) -> float:
        """CPU time so far of all processes together. Only while all run."""
        brokers = sum(member.measured.cpu_s for member in self.members.values())
        return brokers + (self.store.cpu_s if self.store else 0.0)

    @property
    def resident_bytes(self) -> int:
        return sum(member.measured.resident_bytes for member in self.members.values())


@contextmanager
def flymq_cluster(folder: Path, *, etcd: str | None = None, is_watched: bool = False) -> Iterator[Running]:
    """Run FlyMQ's brokers, on a served store or on this etcd."""
    with ExitStack() as stack:
        common: dict[str, object] = {"topics.default_replication_factor": 3, "broker.dev": True}
        store: Measured | None = None
        if etcd is None:
            socket = folder / "store"
            store = stack.enter_context(_served_store(folder / "metadata", socket))
            common["cluster.store"] = socket
        else:
            common |= {"cluster.etcd": etcd, "cluster.name": f"bench-{time.time_ns()}"}
        members = {}
        for number in range(1, BROKERS + 1):
            port = free_port()
            settings = {**common, "broker.id": number, "listener.port": port, "listener.http_port": 0 - is_watched}
            members[number] = Member(
                number, port, _broker_command(folder / f"data-{number}", settings, is_watched), folder / str(number)
            )
            members[number].is_watched = is_watched
        stack.enter_context(_started(members))
        yield Running("FlyMQ", members, store)


def _broker_command(data_dir: Path, settings: Mapping[str, object], is_watched: bool) -> list[str]:
    values = [f"{name}={value}" for name, value in settings.items()]
    if is_watched:
        return [sys.executable, "-m", "benchmarks.watched_broker", str(data_dir), *values]
    flags = [f"--set={value}" for value in values]
    return [sys.executable, "-m", "flymq", "server", "start", f"--data-dir={data_dir}", *flags]


@contextmanager
def _served_store(path: Path, socket: Path) -> Iterator[Measured]:
    command = [sys.executable, "-m", "benchmarks.cluster.served_store", str(path), str(socket)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline(), "the metadata store did not start"
            yield Measured(process.pid, 0)
        finally:
            process.terminate()


@contextmanager
def kafka_cluster(folder: Path) -> Iterator[Running]:
    """Run Kafka's brokers, each of them a controller too."""
    ports = {number: (free_port(), free_port()) for number in range(1, BROKERS + 1)}
    voters = ",".join(f"{number}@127.0.0.1:{controller}" for number, (_, controller) in ports.items())
    members = {}
    for number, (port, controller) in ports.items():
        own = folder / str(number)
        own.mkdir()
        properties = own / "server.properties"
        properties.write_text(
            _PROPERTIES.format(number=number, voters=voters, port=port, controller=controller, data=own / "data")
        )
        members[number] = Member(number, port, Kafka().command(properties, heap="768m"), own)
    with _started(members):
        yield Running(Kafka.name, members)


_PROPERTIES = """
process.roles=broker,controller
node.id={number}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
default.replication.factor=3
"""


@contextmanager
def _started(members: Mapping[int, Member]) -> Iterator[None]:
    """Start the members at the same time: they wait for each other."""
    try:
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(len(members)))
            list(pool.map(Member.start, members.values()))
        yield
    finally:
        for member in members.values():
            member.close()
