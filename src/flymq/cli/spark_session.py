"""Spark sessions for commands: the connection options for its tasks, and where the JVM's log goes."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flymq.cli.options import connection_given
from flymq.cli.output import note
from flymq.model.errors import FlyMQError, PipelineFailed
from flymq.spark.error_messages import failure_of
from flymq.spark.jobs.connection import Connection
from flymq.spark.session import LOCAL_MASTER, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

master_option = click.option("--master", default=LOCAL_MASTER, show_default=True, metavar="URL", help="Spark master.")


def spark_connection(context: click.Context) -> Connection:
    """Return the connection given by options and environment."""
    given: dict[str, Any] = connection_given(context)
    given.pop("timeout", None)
    for name, value in given.items():
        if isinstance(value, Path):  # tasks may run in another working directory
            given[name] = str(value.absolute())
    return Connection(**given)


def spark_failure(error: Exception) -> FlyMQError:
    """Return the error of a Spark job that is not a named pipeline with a log."""
    failure = failure_of(error)
    if type(failure) is PipelineFailed:
        return PipelineFailed(failure.message, hint="flymq doctor checks Spark and this machine.")
    return failure


@contextmanager
def quiet_session(
    app_name: str, master: str = LOCAL_MASTER, settings: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """Open a session that does not print the JVM's log, unless the JVM cannot start."""
    if sys.stderr.isatty():
        note("Starting Spark …")
    with (
        tempfile.TemporaryDirectory(prefix="flymq-") as folder,
        open_session(app_name, master=master, settings=settings, java_log=Path(folder) / "java.log") as session,
    ):
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger(
            "SQLQueryContextLogger"
        ).disabled = True  # it would print errors that are raised as well
        yield session
