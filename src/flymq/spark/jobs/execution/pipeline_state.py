"""Where pipelines are kept: a folder each, with what it does, who runs it, how far it is, and Spark's checkpoint.

STATE/<name>/
├─ job.json         what was asked for
├─ running          held by the process that runs it, with its id
├─ progress.json    how far it is, replaced as it goes on
├─ log              what a pipeline in the background says
└─ checkpoint/      Spark's: a job that was killed goes on from here
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
    """What a pipeline is about."""

    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    """For something that passes by itself, such as a broker that cannot be reached."""
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    KILLED = "killed"
    """It was running, and its process is gone without a word."""


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a pipeline is."""

    state: State = State.NEW
    batches: int = 0
    records: int = 0
    """Records read since the pipeline was made; those of a batch that was repeated count once."""
    records_per_s: float = 0
    behind: int | None = None
    """Records that are there and not read yet; None while nobody knows."""
    note: str = ""
    """What the job itself has to say, such as how much a dry run would restore."""
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
        """Whether there is something to go on with, or somebody is about to begin."""
        return self.has_batches or self.pid() is not None

    @property
    def has_batches(self) -> bool:
        """Whether a batch was planned, or what a restore has in its place."""
        planned = (self.checkpoint / "offsets").glob("[0-9]*")
        return any(planned) or (self.checkpoint / RESTORE_START).exists()

    def job(self) -> Job:
        """Return what the pipeline does."""
        try:
            job: Job = msgspec.json.decode(self._disk.read(self.path / _JOB), type=AnyJob)
        except msgspec.MsgspecError as fault:
            raise InvalidPipeline(
                f"{self.path / _JOB} cannot be read: {fault}", hint="It was changed, or written by a newer FlyMQ."
            ) from fault
        return job

    def progress(self) -> Progress:
        """Return how far the pipeline is, as of its last word or of its silence."""
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
        """Be the one process that runs the pipeline, for a `with` block."""
        try:
            lock = self._disk.lock(self.path / _RUNNING)
        except DirectoryLocked:
            raise PipelineRunning(f"the pipeline {self.name} runs already, as process {self.pid()}") from None
        try:
            yield
        finally:
            lock.release()

    def pid(self) -> int | None:
        """Return the process that runs the pipeline; None if nobody does."""
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
        """Return the process that runs the pipeline, or raise PipelineNotRunning."""
        pid = self.pid()
        if pid is None:
            raise PipelineNotRunning(f"the pipeline {self.name} does not run")
        return pid


class Pipelines:
    """All pipelines of a state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._disk = SystemDisk()

    def all(self) -> list[PipelineFolder]:
        """Return the pipelines in the order of their names."""
        return [self._folder(name) for name in self._disk.list(self.path) if (self.path / name / _JOB).exists()]

    def get(self, name: str) -> PipelineFolder:
        if not _NAME.match(name) or not (self.path / name / _JOB).exists():
            raise PipelineNotFound(f"there is no pipeline {name!r} in {self.path}")
        return self._folder(name)

    def keep(self, name: str, job: Job) -> PipelineFolder:
        """Return the pipeline of this name that does this job; make it if there is none.

        One that has begun goes on where it was, so it must be the same job; how long it runs and how often it looks for
        new records may change.
        """
        if not _NAME.match(name):
            raise InvalidPipeline(
                f"a pipeline cannot be named {name!r}", hint="Use letters, digits, '.', '_' and '-', 100 at most."
            )
        folder = self._folder(name)
        if folder.has_begun and _essence(folder.job()) != _essence(job):
            raise PipelineDiffers(f"the pipeline {name} exists and does something else")
        self._disk.make_directory(folder.path)
        replace_file(self._disk, folder.path / _JOB, msgspec.json.format(msgspec.json.encode(job)))
        return folder

    def remove(self, name: str) -> None:
        """Forget a pipeline that does not run, and how far it was. What it wrote stays."""
        folder = self.get(name)
        with folder.running():
            self._disk.remove_directory(folder.path)

    def _folder(self, name: str) -> PipelineFolder:
        return PipelineFolder(self.path / name)


def _essence(job: Job) -> Job:
    return msgspec.structs.replace(job, once=False, every_ms=0, master=None)
