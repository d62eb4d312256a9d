"""`flymq backup`: create, list and verify backups of a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flymq.cli.exit_codes import ExitCode
from flymq.cli.formats.units import show_bytes
from flymq.cli.options import BrokerCommand, LocalCommand, Noun, wants_json
from flymq.cli.output import counted, note, show
from flymq.cli.spark_session import master_option, quiet_session, spark_connection, spark_failure
from flymq.host.clock import SystemClock

if TYPE_CHECKING:
    from flymq.spark.backup.contents import Backup
    from flymq.spark.jobs.execution.pipeline_state import Progress

_folder_argument = click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
backup_argument = click.argument("path", type=click.Path(file_okay=False, path_type=Path), metavar="BACKUP")


@click.group(cls=Noun)
def backup() -> None:
    """Back up all topics and groups of a broker."""


@backup.command(cls=BrokerCommand)
@_folder_argument
@click.option("--name", metavar="NAME", help="Name of the backup.  [default: the current time]")
@master_option
@click.pass_context
def create(context: click.Context, folder: Path, name: str | None, master: str) -> None:
    """Back up all topics, their settings, and the committed offsets of groups.

    The backup is a new folder in DIR. It contains each topic up to its end at the time it is read.
    """
    from flymq.spark.backup.create import create_backup

    broker = spark_connection(context)
    with broker.client() as client:
        client.connect()  # report a wrong address before starting Spark
    path = folder / (name or _time(SystemClock().now_ms()).replace(":", "-"))
    with quiet_session("flymq backup", master) as spark:
        try:
            made = create_backup(spark, path.absolute(), broker, on_progress=show_progress("backed up"))
        except Exception as error:
            raise spark_failure(error) from error
    show(_as_json(path.name, made), [("BACKUP", "TOPICS", "RECORDS", "SIZE"), _row(path.name, made)])


@backup.command("list", cls=LocalCommand)
@_folder_argument
def list_(folder: Path) -> None:
    """List the backups in a folder."""
    from flymq.spark.backup.contents import list_backups

    found = list_backups(folder)
    rows = [(*_row(name, made), _time(made.created_ms) if made else "incomplete") for name, made in found]
    show([_as_json(name, made) for name, made in found], [("BACKUP", "TOPICS", "RECORDS", "SIZE", "CREATED"), *rows])
    if not found and not wants_json():
        note(f"There are no backups in {folder}. Try: flymq backup create {folder}")


@backup.command(cls=LocalCommand)
@backup_argument
@click.pass_context
def verify(context: click.Context, path: Path) -> None:
    """Verify a backup.

    Reads all of it: no range missing, every record counted, every checksum correct. Needs no broker. Exits with 1 if
    anything is wrong.
    """
    from flymq.spark.session import spark_version

    spark_version()
    from flymq.spark.backup.check import check_backup

    seen = check_backup(path)
    if wants_json():
        show({**seen._asdict(), "problems": list(seen.problems)}, [])
    else:
        for problem in seen.problems:
            click.echo(problem)
        verdict = "complete" if seen.is_whole else f"damaged: {counted(len(seen.problems), 'problem')}"
        records = f"{counted(seen.rows, 'record')} in {counted(seen.files, 'file')}, {show_bytes(seen.size_bytes)}"
        note(f"{path.name} is {verdict}. Checked {records}.")
    if not seen.is_whole:
        context.exit(ExitCode.FAILED)


def show_progress(done: str) -> Callable[[Progress], None]:
    """Return a callback that shows the progress of a job on one line of the terminal."""

    def on_progress(progress: Progress) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{counted(progress.records, 'record')} {done}", err=True, nl=progress.state == "done")

    return on_progress


def _row(name: str, made: Backup | None) -> tuple[object, ...]:
    if made is None:
        return name, "-", "-", "-"
    return name, len(made.topics), made.rows, show_bytes(made.size_bytes)


def _as_json(name: str, made: Backup | None) -> dict[str, object]:
    if made is None:
        return {"name": name, "finished": False}
    return {
        "name": name,
        "finished": True,
        "created_ms": made.created_ms,
        "topics": {topic: made.rows_of(topic) for topic in sorted(made.topics)},
        "groups": sorted(made.groups),
        "records": made.rows,
        "size_bytes": made.size_bytes,
    }


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
