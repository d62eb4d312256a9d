"""`flymq sql`: query topics with SQL."""

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
@click.option("-o", "--output", type=click.Choice(["table", "json", "csv"]), help="Output format.  [default: table]")
@encryption_option
@master_option
@click.pass_context
def sql(context: click.Context, query: str, output: str | None, encryption_key_file: Path | None, master: str) -> None:
    """Query topics with SQL.

    \b
    flymq sql "SELECT status, count(*) FROM orders GROUP BY status"
    flymq sql "DESCRIBE orders"

    The columns are the fields of JSON values, and key, partition, offset and timestamp of each message. Values that are
    not JSON are one column, `value`. Quote the name of a topic with a dot or dash in `backticks`.
    """
    spark_version()
    options = spark_connection(context).options()
    if encryption_key_file is not None:
        options["encryptionKeyFile"] = str(encryption_key_file.absolute())
    with connect(**encryption_settings(encryption_key_file)) as client:
        client.connect()  # report a wrong address before starting Spark
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
    """Print the rows of a query; a table has a limit."""
    if output == "table":
        rows = found.limit(_TABLE_ROWS_MAX + 1).collect()
        shown = [[_cell(value) for value in row] for row in rows[:_TABLE_ROWS_MAX]]
        if found.columns:
            click.echo("\n".join(aligned([found.columns, *shown])))
        if len(rows) > _TABLE_ROWS_MAX:
            note(f"Only the first {_TABLE_ROWS_MAX} rows are shown; -o csv and -o json print all.")
        return
    encode = _as_json if output == "json" else _as_csv
    for text in encode(found.columns, found.toLocalIterator(prefetchPartitions=True)):
        sys.stdout.write(text)


def _as_json(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """One object per line."""
    for row in rows:
        yield _json(dict(zip(columns, row, strict=True))) + "\n"


def _as_csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A header line, then one line per row; null is empty."""
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
    """Convert a Spark value to JSON types."""
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
