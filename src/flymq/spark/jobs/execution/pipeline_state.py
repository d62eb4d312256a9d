"""The state of pipelines on disk: a directory for each, with its job, lock, progress, log and Spark checkpoint.

STATE/<name>/
├─ job.json         the job and its options
├─ running          lock of the process that runs it, with its pid
├─ progress.json    progress, replaced as the job runs
├─ log              output of a pipeline in the background
└─ checkpoint/      Spark's checkpoint: a job that was killed continues from here
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from flymq.host.disk import SystemDisk, replace_file, write_aside
from flymq.model.errors import (
    DirectoryLocked,
    InvalidPipeline,
    PipelineDiffers,
    PipelineNotFound,
    PipelineNotRunning,
    PipelineRunning,
)
from flymq.spark.jobs.all_jobs import AnyJob
from flymq.spark.jobs.job import Job
from flymq.spark.jobs.restore import RESTORE_START

DEFAULT_STATE_DIR = Path("flymq-pipelines")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_JOB = "job.json"
_PROGRESS = "progress.json"
_RUNNING = "running"


class State(StrEnum):
    """The state of a pipeline."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """It waits to retry after a retriable error, such as an unreachable broker."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    """It was running, and its process has died."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of a pipeline."""

    state: State = State.NEW
    batches: int = 0
    records: int = 0
    """Records read since the pipeline was created; those of a repeated batch count once."""
    records_per_s: float = 0
    behind: int | None = None
    """Records not read yet; None if unknown."""
    note: str = ""
    """A note of the job, such as what a dry run would restore."""
    error: str = ""
    hint: str = ""
    updated_ms: int = 0


class PipelineFolder:
    """One pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk = SystemDisk()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def has_begun(self) -> bool:
        """Whether the pipeline has started, or is about to."""
        return self.has_batches or self.pid() is not None

    @property
    def has_batches(self) -> bool:
        """Whether a batch was planned, or the equivalent for a restore."""
        planned = (self.checkpoint / "offsets").glob("[0-9]*")
        return any(planned) or (self.checkpoint / RESTORE_START).exists()

    def job(self) -> Job:
        """Return the job of the pipeline."""
        try:
            job: Job = msgspec.json.decode(self._disk.read(self.path / _JOB), type=AnyJob)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise InvalidPipeline(
                f"{self.path / _JOB} cannot be read: {fault}",
                hint="It was modified, or written by a newer version of FlyMQ.",
            ) from fault
        return job

    def progress(self) -> Progress:
        """Return the progress of the pipeline, as last reported; killed if its process no longer runs."""
        path = self.path / _PROGRESS
        if not path.exists():
            return Progress()
        known = msgspec.json.decode(self._disk.read(path), type=Progress)
        if known.state in (State.STARTING, State.RUNNING, State.WAITING) and self.pid() is None:
            return msgspec.structs.replace(known, state=State.KILLED)
        return known

    def report(self, progress: Progress) -> None:
        write_aside(self._disk, self.path / _PROGRESS, msgspec.json.encode(progress))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the lock of the pipeline for a `with` block."""
        try:
            lock = self._disk.lock(self.path / _RUNNING)
        except DirectoryLocked:
            raise PipelineRunning(f"the pipeline {self.name} is already running as process {self.pid()}") from None
        try:
            yield
        finally:
            lock.release()

    def pid(self) -> int | None:
        """Return the pid of the process that runs the pipeline; None if it is not running."""
        try:
            fd = os.open(self.path / _RUNNING, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.pread(fd, 20, 0) or b"0")
        finally:
            os.close(fd)
        return None

    def running_pid(self) -> int:
        """Return the pid of the process that runs the pipeline, or raise PipelineNotRunning."""
        pid = self.pid()
        if pid is None:
            raise PipelineNotRunning(f"the pipeline {self.name} is not running")
        return pid


class Pipelines:
    """All pipelines of a state directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk = SystemDisk()

    def all(self) -> list[PipelineFolder]:
        """Return the pipelines, sorted by name."""
        return [self._folder(name) for name in self._disk.list(self.path) if (self.path / name / _JOB).exists()]

    def get(self, name: str) -> PipelineFolder:
        if not _NAME.match(name) or not (self.path / name / _JOB).exists():
            raise PipelineNotFound(f"there is no pipeline {name!r} in {self.path}")
        return self._folder(name)

    def keep(self, name: str, job: Job) -> PipelineFolder:
        """Return the pipeline with this name and job; create it if there is none.

        A pipeline that has started continues where it stopped, so it must be the same job; only `once` and the trigger
        interval may change.
        """
        if not _NAME.match(name):
            raise InvalidPipeline(
                f"{name!r} is not a valid pipeline name", hint="Use up to 100 letters, digits, '.', '_' and '-'."
            )
        folder = self._folder(name)
        if folder.has_begun and _essence(folder.job()) != _essence(job):
            raise PipelineDiffers(f"the pipeline {name} exists and has other options")
        self._disk.make_directory(folder.path)
        replace_file(self._disk, folder.path / _JOB, msgspec.json.format(msgspec.json.encode(job)))
        return folder

    def remove(self, name: str) -> None:
        """Remove a pipeline that is not running, with its checkpoint. Its output is kept."""
        folder = self.get(name)
        with folder.running():
            self._disk.remove_directory(folder.path)

    def _folder(self, name: str) -> PipelineFolder:
        return PipelineFolder(self.path / name)


def _essence(job: Job) -> Job:
    return msgspec.structs.replace(job, once=False, every_ms=0, master=None)
