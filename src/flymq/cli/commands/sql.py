"""`flymq sql`: ask topics as if they were tables."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from flymq.cli.connection import connect, encryption_option, encryption_settings
from flymq.cli.options import BrokerCommand, wants_json
from flymq.cli.output import aligned, note
from flymq.cli.spark_session import master_option, quiet_session, spark_connection
from flymq.spark.session import QUICK_START, spark_version
from flymq.spark.sql import TopicViews, query_failure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_TABLE_ROWS_MAX = 1_000
_NULL = "-"


@click.command(cls=BrokerCommand)
@click.argument("query")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "csv"]), help="How rows are printed.  [default: table]"
)
@encryption_option
@master_option
@click.pass_context
def sql(context: click.Context, query: str, output: str | None, encryption_key_file: Path | None, master: str) -> None:
    """Ask topics as if they were tables.

    \b
    flymq sql "SELECT status, count(*) FROM orders GROUP BY status"
    flymq sql "DESCRIBE orders"

    The fields of JSON values are columns; so are the key, partition, offset and timestamp of each message. Other values
    are one column, `value`. A topic with a dot or a dash in its name goes into `backquotes`.
    """
    spark_version()
    options = spark_connection(context).options()
    if encryption_key_file is not None:
        options["encryptionKeyFile"] = str(encryption_key_file.absolute())
    with connect(**encryption_settings(encryption_key_file)) as client:
        client.connect()  # a wrong address is told before Spark starts
        with quiet_session("flymq sql", master, QUICK_START) as spark:
            print_result(TopicViews(spark, client, options), query, output or ("json" if wants_json() else "table"))


def print_result(views: TopicViews, query: str, output: str) -> None:
    """Run one query and print its rows."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    found = views.query(query)
    try:
        print_rows(found, output)
    except (PySparkException, Py4JError) as error:
        raise query_failure(error) from error


def print_rows(found: DataFrame, output: str) -> None:
    """Print the rows of a query: all of them, except in a table."""
    if output == "table":
        rows = found.limit(_TABLE_ROWS_MAX + 1).collect()
        shown = [[_cell(value) for value in row] for row in rows[:_TABLE_ROWS_MAX]]
        if found.columns:
            click.echo("\n".join(aligned([found.columns, *shown])))
        if len(rows) > _TABLE_ROWS_MAX:
            note(f"The first {_TABLE_ROWS_MAX} rows; -o csv and -o json print all.")
        return
    encode = _as_json if output == "json" else _as_csv
    for text in encode(found.columns, found.toLocalIterator(prefetchPartitions=True)):
        sys.stdout.write(text)


def _as_json(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """One object a line."""
    for row in rows:
        yield _json(dict(zip(columns, row, strict=True))) + "\n"


def _as_csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A heading, then a line each; null is empty."""
    line = io.StringIO()
    writer = csv.writer(line, lineterminator="\n")
    writer.writerow(columns)
    yield line.getvalue()
    for row in rows:
        line.seek(0)
        line.truncate()
        writer.writerow(["" if value is None else _cell(value) for value in row])
        yield line.getvalue()


def _cell(value: Any) -> str:
    match value:
        case None:
            return _NULL
        case bool():
            return str(value).lower()
        case str() | int() | float() | Decimal():
            return str(value)
        case bytes() | bytearray():
            return _text(bytes(value))
        case datetime():
            return value.isoformat(" ", "milliseconds")
        case date():
            return value.isoformat()
    return _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(_plain(value), enc_hook=str).decode()


def _plain(value: Any) -> Any:
    """Return a value of Spark as JSON knows it."""
    if isinstance(value, bytes | bytearray):
        return _text(bytes(value))
    if isinstance(value, dict):
        return {str(name): _plain(field) for name, field in value.items()}
    if isinstance(value, tuple) and hasattr(value, "asDict"):
        return {name: _plain(field) for name, field in value.asDict().items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
