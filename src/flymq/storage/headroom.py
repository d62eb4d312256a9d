"""What a broker may run out of: disk space and file descriptors. Both come back, and then it goes on by itself.

    <data dir>/reserve    occupies space that is given back when the disk is full

While the disk is full, batches of clients are refused at the gates of their logs, before they reach the disk. So the
space of the reserve is left for what makes room: deleting topics and records, checkpoints and retention. Committed
offsets and transactions, in internal topics, may use half of it. When there is room, the reserve is allocated again,
and the gates open. Reads are never refused.

A reader or a roll that finds no free descriptor fails, and the next one tries again; see `Log.release_sealed`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from flymq.host.clock import Clock
from flymq.host.disk import Disk
from flymq.host.failure_log import FailureLog
from flymq.host.tasks import Threads
from flymq.model.errors import CoordinatorUnavailable, DiskFull, ResourcesExhausted, StorageError, TooManyOpenFiles
from flymq.model.names import is_internal

logger = logging.getLogger(__name__)

RESERVE_NAME = "reserve"
_CHECK_S = 1.0
_LOOK_S = 30.0
"""How often descriptors are counted while nothing is missing: what only connections lack, nobody reports."""
_ROOM_BYTES_MIN = 256 << 10
_SPARE_FILES = 16


class WriteGate:
    """Whether logs may take batches of clients. One for many logs."""

    __slots__ = ("refusal", "report")

    def __init__(self, report: Callable[[ResourcesExhausted], None] = lambda error: None) -> None:
        self.refusal: str | None = None
        """Why they may not; None: they may."""
        self.report = report
        """Called with the error when a log finds that something has run out."""

    def check(self) -> None:
        if self.refusal is not None:
            raise DiskFull(self.refusal)


class Headroom:
    """Notices that something has run out, and that it is there again. One for a broker."""

    def __init__(self, disk: Disk, data_dir: Path, clock: Clock, threads: Threads, *, reserve_bytes: int) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._reserve = data_dir / RESERVE_NAME
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._threads = threads
        self._topics = WriteGate(self.report)
        self._internal_topics = WriteGate(self.report)
        self._full_since_s: float | None = None
        self._files_out_since_s: float | None = None
        self._reported = asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._postponed: list[Callable[[], Awaitable[None]]] = []
        self.on_files_out: list[Callable[[], None]] = []
        """Called when there is no free descriptor: close files that can be opened again."""
        self.on_room: list[Callable[[], None]] = []
        """Called when there is room again, or a free descriptor."""

    @property
    def is_disk_full(self) -> bool:
        return self._full_since_s is not None

    @property
    def is_out_of_files(self) -> bool:
        return self._files_out_since_s is not None

    @property
    def _lacks_something(self) -> bool:
        return self.is_disk_full or self.is_out_of_files or bool(self._postponed)

    @property
    def problems(self) -> list[str]:
        """What the disk lacks, for people."""
        if not self.is_disk_full:
            return []
        return [f"The disk of {self._data_dir} is full: writes are refused, reads continue. {DiskFull.hint}"]

    def gate_of(self, topic: str) -> WriteGate:
        return self._internal_topics if is_internal(topic) else self._topics

    def check_room(self) -> None:
        """Raise DiskFull while writes of clients are refused."""
        self._topics.check()

    # --- run out

    def open(self) -> None:
        """Allocate the reserve, at start. A start on a full disk needs its space: for recovery, and to make room."""
        try:
            free_bytes = self._disk.space(self._data_dir).free_bytes
            if free_bytes < self._reserve_bytes // 2:
                raise DiskFull(f"{self._data_dir}: {free_bytes} bytes are free")
            self._allocate()
        except ResourcesExhausted as error:
            self.report(error)
        except StorageError as error:
            logger.error("no space can be reserved for a full disk: %s", error)

    def report(self, error: ResourcesExhausted) -> None:
        """Something has run out. Safe in any thread."""
        if threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.report, error)
            return
        self._reported.set()
        if isinstance(error, TooManyOpenFiles):
            if self._files_out_since_s is None:
                self._note_files_out(error)
        elif self._full_since_s is None:
            self._full_since_s = self._clock.monotonic_s()
            self._topics.refusal = f"the disk of {self._data_dir} is full"
            with suppress(StorageError):
                self._disk.remove(self._reserve)
            logger.error("%s. Writes are refused until there is room, reads continue. %s", error.message, DiskFull.hint)

    def _note_files_out(self, error: TooManyOpenFiles) -> None:
        if self._files_out_since_s is None:
            self._files_out_since_s = self._clock.monotonic_s()
            logger.error("%s. %s", error.message, error.hint)
        for close_some in self.on_files_out:
            close_some()

    async def when_room(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do work that writes now, or, if the disk is full, before any write of a client."""
        try:
            await work()
        except (ResourcesExhausted, CoordinatorUnavailable) as error:
            if isinstance(error, ResourcesExhausted):
                self.report(error)
            self._postponed.append(work)

    # --- recover

    async def run(self) -> None:
        failures = FailureLog(logger, "the check of %s failed")
        while True:
            if not self._lacks_something:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._reported.wait(), _LOOK_S)
            self._reported.clear()
            if self._lacks_something:
                await asyncio.sleep(_CHECK_S)
            try:
                await self.check()
                failures.succeeded("the disk")
            except Exception as error:
                failures.failed("the disk", error)

    async def check(self) -> None:
        """Open the gates if there is room again."""
        if self._full_since_s is not None:
            await self._leave_full(self._full_since_s)
        elif self._postponed:
            with suppress(ResourcesExhausted, CoordinatorUnavailable):
                await self._do_postponed()
        if not self._disk.can_open(_SPARE_FILES):
            self._note_files_out(TooManyOpenFiles(f"fewer than {_SPARE_FILES} file descriptors are free"))
        elif self._files_out_since_s is not None:
            passed_s = self._clock.monotonic_s() - self._files_out_since_s
            self._files_out_since_s = None
            logger.warning("there are free file descriptors again, after %.0f s", passed_s)
            self._tell_room()

    async def _leave_full(self, since_s: float) -> None:
        free_bytes = self._disk.space(self._data_dir).free_bytes
        is_short = free_bytes < self._reserve_bytes // 2
        self._internal_topics.refusal = self._topics.refusal if is_short else None
        if free_bytes < max(2 * self._reserve_bytes, _ROOM_BYTES_MIN):
            return
        try:
            await self._threads.run(self._allocate)
            self._internal_topics.refusal = None
            await self._do_postponed()
        except (ResourcesExhausted, CoordinatorUnavailable):
            with suppress(StorageError):
                self._disk.remove(self._reserve)
            return
        self._full_since_s = None
        self._topics.refusal = None
        logger.warning("the disk has room again, after %.0f s: writes continue", self._clock.monotonic_s() - since_s)
        self._tell_room()

    def _tell_room(self) -> None:
        for watcher in self.on_room:
            watcher()

    async def _do_postponed(self) -> None:
        while self._postponed:
            await self._postponed[0]()
            del self._postponed[0]

    def _allocate(self) -> None:
        if not self._reserve_bytes:
            self._disk.remove(self._reserve)
            return
        file = self._disk.open(self._reserve)
        try:
            if file.size() > self._reserve_bytes:  # the setting was lowered
                file.truncate(self._reserve_bytes)
            file.allocate(self._reserve_bytes)
        except ResourcesExhausted:
            with suppress(StorageError):
                self._disk.remove(self._reserve)
            raise
