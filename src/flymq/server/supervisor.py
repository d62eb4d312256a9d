"""Several brokers on one machine, one process each, under one supervisor that starts again what dies.

    <data dir>/lock             held by the supervisor
    <data dir>/metadata/        the metadata store of all brokers, unless that is in etcd, and the socket to it
    <data dir>/broker-<id>/     the data directory of a broker

The supervisor serves the metadata to its brokers, and does nothing else for them: clients connect to the brokers. When
the supervisor dies, its brokers end as well: without it, nobody would know who of them leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any

import msgspec

from flymq.host.child_process import ChildProcess, describe_exit, start_child
from flymq.host.host import Host
from flymq.host.network import local_socket_path
from flymq.host.tasks import Tasks
from flymq.metadata.images import IMAGE_NAME
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.model.errors import BrokerProcessFailed, DirectoryLocked, ForeignDataDirectory, FsyncFailed
from flymq.server.config import NO_PORT, Config

logger = logging.getLogger(__name__)

SUPERVISED_METADATA = "metadata"
"""Name of the directory of the metadata store: whose data directory has it, runs several brokers."""
END_WITH_SUPERVISOR_S = 5.0
"""A broker whose supervisor has died ends cleanly within this time, or at once after it."""
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.5, 30.0
_LONG_LIFE_S = 60.0
"""A broker that has lived for so long is started again at once when it dies."""
_KILL_AFTER_S = 5.0
"""How much longer than its own `broker.shutdown_timeout_ms` a broker may take to end."""
_METADATA_THREADS = 2


class Ready(msgspec.Struct, frozen=True):
    """What a broker writes to stdout, as a line of JSON, when it accepts connections."""

    port: int
    http_port: int


@dataclass(slots=True)
class SupervisedBroker:
    """One broker, through all its processes."""

    broker_id: int
    data_dir: Path
    port: int
    http_port: int | None
    process: ChildProcess | None = None
    starts: int = 0
    was_ready: bool = False

    def ready(self, ready: Ready) -> None:
        # A port that the system has chosen stays: clients know it by now.
        self.port = ready.port
        if self.http_port == 0:
            self.http_port = ready.http_port
        self.was_ready = True


def broker_directory(data_dir: Path, broker_id: int) -> Path:
    """Return the data directory of a broker under a supervisor."""
    return data_dir / f"broker-{broker_id}"


class Supervisor:
    """Runs the brokers from `start` to `stop`."""

    def __init__(
        self,
        host: Host,
        config: Config,
        command: Sequence[str],
        count: int,
        on_ready: Callable[[SupervisedBroker], None] = lambda broker: None,
    ) -> None:
        """`command` starts a broker with all settings but those in which the brokers differ."""
        config.check_advertised()
        self._host = host
        self._config = config
        self._command = command
        self._on_ready = on_ready
        self._data_dir = config.broker.data_dir.absolute()
        self.brokers = [self._plan(index) for index in range(count)]
        self.failed = asyncio.Event()
        """Set when the supervisor must be stopped: the metadata cannot be written any more."""
        self._store: Path | None = None
        self._stopping = asyncio.Event()
        self._tasks = Tasks(self._task_failed)
        self._undo = AsyncExitStack()

    def _plan(self, index: int) -> SupervisedBroker:
        broker_id, listener = self._config.broker.id + index, self._config.listener
        http_port = listener.http_port
        if http_port is None and index > 0:
            http_port = NO_PORT  # the first one has the default; all speak HTTP on their main port, too
        return SupervisedBroker(
            broker_id,
            broker_directory(self._data_dir, broker_id),
            listener.port + index if listener.port else 0,
            http_port + index if http_port is not None and http_port > 0 else http_port,
        )

    # --- start

    async def start(self) -> None:
        """Start all brokers; return when they accept connections. Raises BrokerProcessFailed if one of them ends."""
        try:
            await self._open_store()
            await asyncio.gather(*(self._until_free(broker.data_dir) for broker in self.brokers))
            processes = [await self._start_process(broker) for broker in self.brokers]
            await _all(starmap(self._first_ready, zip(self.brokers, processes, strict=True)))
        except BaseException:
            await self.stop()
            raise

    async def _open_store(self) -> None:
        disk, config = self._host.disk, self._config
        disk.make_directory(self._data_dir)
        if disk.exists(self._data_dir / "topics"):
            raise ForeignDataDirectory(
                f"{self._data_dir} is the data directory of a single broker",
                hint="Start it without --brokers, or make it one of several with `flymq cluster adopt --into`.",
            )
        lock = disk.lock(self._data_dir / "lock")
        self._undo.callback(lock.release)
        if config.cluster.etcd is not None:
            return
        directory = self._data_dir / SUPERVISED_METADATA
        disk.make_directory(directory)
        threads = self._host.new_threads("metadata", _METADATA_THREADS)
        self._undo.callback(threads.close)
        path = directory / IMAGE_NAME
        store = await threads.run(
            lambda: SqliteMetadataStore.open(disk, path, threads=threads, on_fatal=self._metadata_failed)
        )
        self._undo.push_async_callback(store.close)
        self._store = local_socket_path(directory)
        if self._store.parent != directory:
            self._undo.callback(disk.remove_directory, self._store.parent)
        server = await MetadataServer.open(self._host, store, self._store)
        self._undo.push_async_callback(server.close)

    async def _until_free(self, data_dir: Path) -> None:
        """Wait until a broker has ended whose supervisor was killed."""
        disk, clock = self._host.disk, self._host.clock
        if not disk.exists(data_dir):
            return
        deadline_s = clock.monotonic_s() + 2 * END_WITH_SUPERVISOR_S
        while True:
            try:
                disk.lock(data_dir / "lock").release()
                return
            except DirectoryLocked:
                if clock.monotonic_s() > deadline_s:
                    raise
                await asyncio.sleep(0.1)

    async def _first_ready(self, broker: SupervisedBroker, process: ChildProcess) -> None:
        if not await self._until_ready(broker, process):
            code = await process.wait()
            broker.process = None
            raise BrokerProcessFailed(f"broker {broker.broker_id} did not start ({describe_exit(code)})")
        self._tasks.spawn(f"broker {broker.broker_id}", self._keep_running(broker, process))

    async def _start_process(self, broker: SupervisedBroker) -> ChildProcess:
        broker.process = await start_child(self._command_of(broker))
        broker.starts += 1
        return broker.process

    def _command_of(self, broker: SupervisedBroker) -> list[str]:
        settings: dict[str, object] = {}
        if self._store is not None:
            settings["cluster.store"] = self._store
        if broker.http_port is not None:
            settings["listener.http_port"] = broker.http_port
        if (advertised_port := self._config.listener.advertised_port) is not None:
            settings["listener.advertised_port"] = advertised_port + broker.broker_id - self._config.broker.id
        return [
            *self._command,
            *(f"--set={name}={value}" for name, value in settings.items()),
            f"--id={broker.broker_id}",
            f"--data-dir={broker.data_dir}",
            f"--port={broker.port}",
        ]

    async def _until_ready(self, broker: SupervisedBroker, process: ChildProcess) -> bool:
        """Return whether it is ready; if not, it has ended or is about to."""
        line = await process.first_line()
        try:
            ready = msgspec.json.decode(line, type=Ready)
        except msgspec.DecodeError:
            return False
        is_first = not broker.was_ready
        broker.ready(ready)
        if is_first:
            self._on_ready(broker)
        return True

    # --- run

    async def _keep_running(self, broker: SupervisedBroker, process: ChildProcess) -> None:
        pause_s = _PAUSE_S_MIN
        while True:
            started_s = self._host.clock.monotonic_s()
            code = await process.wait()
            broker.process = None
            if self._stopping.is_set():
                return
            if self._host.clock.monotonic_s() - started_s > _LONG_LIFE_S:
                pause_s = _PAUSE_S_MIN
            logger.error(
                "broker %d has ended (%s); it is started again in %.1f s",
                broker.broker_id,
                describe_exit(code),
                pause_s,
            )
            if await self._stops_within(pause_s):
                return
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            process = await self._start_process(broker)
            if self._stopping.is_set():
                process.terminate()
            elif await self._until_ready(broker, process):
                logger.info("broker %d is ready again", broker.broker_id)

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    def _metadata_failed(self, error: FsyncFailed) -> None:
        logger.critical("%s. %s", error.message, error.hint)
        self.failed.set()

    def _task_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)
        self.failed.set()

    # --- stop

    async def stop(self) -> bool:
        """End all brokers at the same time, then the metadata store. Return whether all of them ended cleanly."""
        self._stopping.set()
        codes = await asyncio.gather(*(self._end(broker) for broker in self.brokers))
        await self._tasks.close()
        await self._undo.aclose()
        return not any(codes)

    async def _end(self, broker: SupervisedBroker) -> int:
        process = broker.process
        if process is None:
            return 0
        process.terminate()
        try:
            async with asyncio.timeout(self._config.broker.shutdown_timeout_ms / 1000 + _KILL_AFTER_S):
                return await process.wait()
        except TimeoutError:
            logger.error("broker %d does not end and is killed", broker.broker_id)
            process.kill()
            return await process.wait()


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all of them; if one fails, cancel the others and raise its error."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
