"""What the commands that run on Spark share: the connection as its tasks need it, and where Java's words go."""

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
from flymq.spark.jobs.connection import Connection
from flymq.spark.jobs.failures import failure_of
from flymq.spark.session import LOCAL_MASTER, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

master_option = click.option(
    "--master", default=LOCAL_MASTER, show_default=True, metavar="URL", help="Where Spark runs: here, or a cluster."
)


def spark_connection(context: click.Context) -> Connection:
    """Return the connection that was described by options and environment."""
    given: dict[str, Any] = connection_given(context)
    given.pop("timeout", None)
    for name, value in given.items():
        if isinstance(value, Path):  # it may be read from another folder
            given[name] = str(value.absolute())
    return Connection(**given)


def spark_failure(error: Exception) -> FlyMQError:
    """Return what was wrong with something on Spark that is no pipeline with a name and a log."""
    failure = failure_of(error)
    if type(failure) is PipelineFailed:
        return PipelineFailed(failure.message, hint="flymq doctor looks at Spark and at this machine.")
    return failure


@contextmanager
def quiet_session(
    app_name: str, master: str = LOCAL_MASTER, settings: dict[str, str] | None = None
) -> Iterator[SparkSession]:
    """Open a session whose Java process keeps to itself, unless it cannot start."""
    if sys.stderr.isatty():
        note("Starting Spark …")
    with (
        tempfile.TemporaryDirectory(prefix="flymq-") as folder,
        open_session(app_name, master=master, settings=settings, java_log=Path(folder) / "java.log") as session,
    ):
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # it prints what is raised, too
        yield session
