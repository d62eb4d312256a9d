"""What all jobs have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flymq.spark.jobs.connection import Connection

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.runner import Run

SOON_MS = 1_000
"""How often a job looks for new records if nothing else is said."""


class Job(Struct, frozen=True, kw_only=True, tag_field="job", omit_defaults=True):
    """What is asked for. It is kept as JSON under the pipeline's name, and is the same at every start."""

    broker: Connection = Connection()
    once: bool = False
    """Whether to end with what is there now, instead of waiting for more."""
    every_ms: int = SOON_MS
    """The least time between the beginnings of two batches."""
    master: str | None = None
    """The Spark cluster to run on; this machine if not given."""

    @property
    def default_name(self) -> str:
        """The pipeline's name where none is given."""
        raise NotImplementedError

    def run(self, run: Run) -> None:
        """Do the work; return when it is done or when `run` is to stop."""
        raise NotImplementedError


class SqlJob(Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job whose SQL sees a topic as a table."""

    topic: str
    schema: str | None = None
    """The fields of JSON values that are columns, as in a table."""
    encryption_key_file: str | None = None
    """For topics that are encrypted end to end: what is read and what is written."""
