"""The base class of all jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from flymq.spark.jobs.connection import Connection

if TYPE_CHECKING:
    from flymq.spark.jobs.execution.runner import Run

SOON_MS = 1_000
"""The default trigger interval."""


class Job(Struct, frozen=True, kw_only=True, tag_field="job", omit_defaults=True):
    """The options of a job. They are stored as JSON with the pipeline and are the same at every start."""

    broker: Connection = Connection()
    once: bool = False
    """Whether to stop after the available records, instead of waiting for more."""
    every_ms: int = SOON_MS
    """Trigger interval: the minimum time between the starts of two batches."""
    master: str | None = None
    """The Spark master to run on; local if not set."""

    @property
    def default_name(self) -> str:
        """The default name of the pipeline."""
        raise NotImplementedError

    def run(self, run: Run) -> None:
        """Run the job; return when it is done or `run` is stopping."""
        raise NotImplementedError


class SqlJob(Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job with SQL over a topic as a table."""

    topic: str
    schema: str | None = None
    """The schema of JSON values, as DDL: its fields become columns."""
    encryption_key_file: str | None = None
    """Key for end-to-end encryption, for reading and writing."""
