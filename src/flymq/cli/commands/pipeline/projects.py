"""`flymq pipeline init`, `run` and `dry-run`: declarative projects, PySpark programs and SQL files."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path

import click

from flymq.cli.connection import connect
from flymq.cli.options import BrokerCommand, LocalCommand, connection_given
from flymq.cli.output import note, show
from flymq.cli.spark_session import master_option, quiet_session, spark_connection
from flymq.client.settings import ADDRESS_VARIABLE

_STATEMENT_END = re.compile(r";[ \t]*(?:\n|\Z)")


@click.command(cls=LocalCommand)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR")
@click.option("-t", "--topic", default="events", show_default=True, help="Topic that the project reads.")
def init(folder: Path, topic: str) -> None:
    """Create a small declarative pipeline project that reads a topic."""
    from flymq.spark.declarative import write_project

    write_project(folder, topic)
    note(f"Created a project that reads the topic {topic}. Try: flymq pipeline run {folder}")


@click.command(cls=BrokerCommand)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--full-refresh", is_flag=True, help="Drop all tables of a project and recompute them.")
@master_option
@click.pass_context
def run(context: click.Context, file: Path, arguments: tuple[str, ...], full_refresh: bool, master: str) -> None:
    """Run a declarative project, a PySpark program or a SQL file.

    FILE is the folder of a project or its spark-pipeline.yml; or a .py file, which gets a session as `spark`; or a .sql
    file, in which topics are tables. Sources that name no broker read from --server.
    """
    name_broker(context)
    if file.suffix == ".py":
        _run_program(file, arguments, master)
    elif file.suffix == ".sql":
        _run_statements(context, file, master)
    else:
        _run_project(file, ["run", *(["--full-refresh-all"] if full_refresh else [])], master)


@click.command("dry-run", cls=BrokerCommand)
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@master_option
@click.pass_context
def dry_run(context: click.Context, file: Path, master: str) -> None:
    """Validate a declarative project without writing anything.

    Finds wrong names, columns and types, and circular dependencies.
    """
    name_broker(context)
    _run_project(file, ["dry-run"], master)


def name_broker(context: click.Context) -> None:
    """Export the broker address to everything started from here."""
    if (server := connection_given(context).get("server")) is not None:
        os.environ[ADDRESS_VARIABLE] = server


def _run_project(path: Path, arguments: list[str], master: str) -> None:
    from flymq.spark.declarative import find_spec, project_session, run_project, table_sizes

    spec = find_spec(path)
    note("Starting Spark …")
    with project_session(spec, master) as session:
        run_project(session, spec, *arguments)
        if arguments[0] == "run":
            sizes = table_sizes(session)
            show(sizes, [("TABLE", "ROWS"), *sizes.items()])


def _run_program(file: Path, arguments: tuple[str, ...], master: str) -> None:
    sys.argv = [str(file), *arguments]
    sys.path.insert(0, str(file.parent.absolute()))
    with quiet_session(f"flymq {file.name}", master) as session:
        runpy.run_path(str(file), {"spark": session}, "__main__")


def _run_statements(context: click.Context, file: Path, master: str) -> None:
    from flymq.cli.commands.sql import print_result
    from flymq.spark.sql import TopicViews

    statements = [text.strip() for text in _STATEMENT_END.split(file.read_text(encoding="utf-8")) if text.strip()]
    with connect() as client, quiet_session(f"flymq {file.name}", master) as session:
        views = TopicViews(session, client, spark_connection(context).options())
        for statement in statements:
            print_result(views, statement, "table")
