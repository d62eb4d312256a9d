"""The built-in jobs: `flymq pipeline archive`, `restore`, `aggregate` and the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click
import msgspec

from flymq.cli.commands.pipeline.launch import (
    RunningOptions,
    duration_option,
    endless_options,
    running_options,
    start,
)
from flymq.cli.connection import complete_topics, encryption_option, topic_argument
from flymq.cli.formats.start_position import Kind, Position, position_option
from flymq.cli.options import BrokerCommand, parse_assignment, wants_json
from flymq.cli.output import note, show
from flymq.cli.spark_session import spark_connection

_RUNNING = tuple(RunningOptions.__annotations__)

folder_type = click.Path(file_okay=False, path_type=Path)
schema_option = click.option(
    "--schema",
    metavar="DDL",
    help="Fields of JSON values that become columns, such as 'user STRING, amount DOUBLE'.  [default: inferred]",
)
start_option = click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Start position of a new pipeline.",
)
batch_records_option = click.option(
    "--batch-records", type=click.IntRange(min=1), metavar="N", help="Maximum records per batch."
)


def _start(kind: type[Any], options: dict[str, Any], **fields: Any) -> None:
    """Create the job from the options and run it."""
    running = cast(RunningOptions, {name: options.pop(name) for name in _RUNNING})
    broker = spark_connection(click.get_current_context())
    given = {name: value for name, value in (options | fields).items() if value is not None}
    if (key_file := given.get("encryption_key_file")) is not None:
        given["encryption_key_file"] = str(key_file.absolute())
    start(kind(broker=broker, master=running["master"], **given), running)


def _time_ms(position: Position | None, option: str) -> int | None:
    if position is None:
        return None
    if position.kind is not Kind.TIME:
        raise click.BadParameter(
            "It takes a time such as 2026-01-31T12:00, or a duration ago such as 10m.", param_hint=option
        )
    return position.number


def _position(context: click.Context, option: click.Parameter, text: str | None) -> Position | None:
    return None if text is None else position_option(context, option, text)


def _times(command: Any) -> Any:
    for name, text in (
        ("--until", "Only records before this time."),
        ("--since", "Only records at or after this time."),
    ):
        command = click.option(name, callback=_position, metavar="TIME", help=text)(command)
    return command


# --- archive and restore --------------------------------------------------------------------------------------------


@click.command(cls=BrokerCommand)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("--to", type=folder_type, required=True, metavar="FOLDER", help="Archive folder; created if missing.")
@click.option(
    "--file-records", type=click.IntRange(min=1), metavar="N", help="Maximum records per file.  [default: 1 M]"
)
@click.option(
    "--batch-records", type=click.IntRange(min=1), metavar="N", help="Maximum records per batch.  [default: 10 M]"
)
@click.option("--allow-data-loss", is_flag=True, help="Continue when records were deleted before they were archived.")
@endless_options("1m")
@running_options
def archive(topics: tuple[str, ...], to: Path, **options: Any) -> None:
    """Archive topics as Parquet files with manifests."""
    from flymq.spark.jobs.archive import ArchiveJob

    _start(ArchiveJob, options, topics=list(topics), to=str(to.absolute()))


def _offset_ranges(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> list[tuple[int, str, str]]:
    """Parse PARTITION:START-END, where START or END may be missing."""
    found = []
    for text in texts:
        partition, _, span = text.partition(":")
        begin, dash, end = span.partition("-")
        if not partition.isdecimal() or not dash or not (begin + end).isdecimal():
            raise click.BadParameter(f"{text!r} is not PARTITION:START-END, such as 0:100-200, 0:100- or 0:-200.")
        found.append((int(partition), begin, end))
    return found


@click.command(cls=BrokerCommand)
@click.argument("archive", type=click.Path(path_type=Path))
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--to", metavar="TOPIC", help="Restore into this topic.  [default: the same name]")
@_times
@click.option(
    "--offsets",
    multiple=True,
    callback=_offset_ranges,
    metavar="P:START-END",
    help="Only these offsets of a partition: START inclusive, END exclusive, either optional. Repeatable.",
)
@click.option("--append", is_flag=True, help="Append to topics that already have records.")
@click.option(
    "--groups", is_flag=True, help="Also restore consumer groups, each to the record it would have read next."
)
@click.option("--dry-run", is_flag=True, help="Show what would be restored without changing anything.")
@running_options
def restore(archive: Path, topics: tuple[str, ...], **options: Any) -> None:
    """Restore topics from an archive, as of a point in time.

    All topics of the archive, unless some are named. Missing topics are created with their archived settings.
    """
    from flymq.spark.archive.selection import Selection
    from flymq.spark.jobs.restore import RestoreJob

    ranges = options.pop("offsets")
    selection = Selection(
        since_ms=_time_ms(options.pop("since"), "'--since'"),
        until_ms=_time_ms(options.pop("until"), "'--until'"),
        start_offsets={partition: int(begin) for partition, begin, _ in ranges if begin},
        end_offsets={partition: int(end) for partition, _, end in ranges if end},
    )
    fields: dict[str, Any] = {"archive": str(archive.absolute()), "topics": list(topics), "selection": selection}
    if options.pop("dry_run"):
        _show_plan(RestoreJob(to=options["to"], **fields))
        return
    _start(RestoreJob, options, **fields)


def _show_plan(job: Any) -> None:
    plan = job.plan()
    parts = [
        {
            "topic": part.source.topic,
            "partition": part.source.partition,
            "to": part.target.topic,
            "archived_from": part.pieces[0].start_offset,
            "archived_to": part.pieces[-1].end_offset,
            "records": part.rows,
        }
        for part in plan.partitions
    ]
    heading = ("TOPIC", "PARTITION", "TO", "ARCHIVED FROM", "TO BEFORE", "RECORDS")
    show(parts, [heading, *(tuple(part.values()) for part in parts)])
    if not wants_json():
        note(f"{plan.rows} records would be restored. Dry run: nothing was changed.")


# --- topics and snapshots -------------------------------------------------------------------------------------------


def _sums(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Parse NAME=EXPRESSION, or a field, whose sum is named `sum_<field>`."""
    return dict(parse_assignment(text, "--sum") if "=" in text else (f"sum_{text}", text) for text in texts)


@click.command(cls=BrokerCommand)
@topic_argument
@click.option("--to", metavar="TOPIC", help="Output topic, for one JSON message per window.")
@click.option("--to-parquet", type=folder_type, metavar="FOLDER", help="Output folder, for Parquet files.")
@click.option("--by", "key", default="CAST(key AS STRING)", show_default=True, metavar="SQL", help="Grouping key.")
@click.option(
    "--sum", "sums", multiple=True, callback=_sums, metavar="FIELD", help="Field to sum, or NAME=SQL. Repeatable."
)
@click.option("--time", default="timestamp", show_default=True, metavar="SQL", help="Event time of a record.")
@duration_option("--window", "window_ms", default="1m", show_default=True, help="Window length.")
@duration_option("--slide", "slide_ms", help="Slide interval of overlapping windows.")
@duration_option(
    "--late", "late_ms", default="10s", show_default=True, help="Watermark delay: how late a record may arrive."
)
@click.option("--updates", is_flag=True, help="Emit a window at every update, not once when it closes.")
@schema_option
@encryption_option
@start_option
@endless_options("1s")
@running_options
def aggregate(topic: str, to_parquet: Path | None, updates: bool, **options: Any) -> None:
    """Count and sum records by key, in time windows."""
    from flymq.spark.jobs.aggregate import AggregateJob

    folder = None if to_parquet is None else str(to_parquet.absolute())
    _start(AggregateJob, options, topic=topic, to_parquet=folder, emit="updates" if updates else "final")


@click.command(cls=BrokerCommand)
@topic_argument
@click.option("--to", required=True, metavar="TOPIC", help="Output topic.")
@click.option("--sql", required=True, metavar="QUERY", help="Query; the topic is a table of the same name.")
@schema_option
@encryption_option
@start_option
@batch_records_option
@endless_options("1s")
@running_options
def transform(topic: str, **options: Any) -> None:
    """Transform a topic into another with SQL, exactly once.

    \b
    flymq pipeline transform orders --to large --schema 'user STRING, amount DOUBLE' \\
        --sql 'SELECT key, user, amount FROM orders WHERE amount > 100'
    """
    from flymq.spark.jobs.transform import TransformJob

    _start(TransformJob, options, topic=topic)


@click.command(cls=BrokerCommand)
@topic_argument
@click.option("--to", type=folder_type, required=True, metavar="FOLDER", help="Snapshot folder.")
@batch_records_option
@endless_options("1m")
@running_options
def compact(topic: str, to: Path, **options: Any) -> None:
    """Keep the latest value of every key as a snapshot in Parquet.

    FOLDER/current is always a complete snapshot. Records without a key are ignored; a null value deletes its key.
    """
    from flymq.spark.jobs.compact import CompactJob

    _start(CompactJob, options, topic=topic, to=str(to.absolute()))


@click.command(cls=BrokerCommand)
@topic_argument
@click.option("--to", metavar="TOPIC", help="Output topic.  [default: the origin of each dead letter]")
@_times
@click.option("--where", metavar="SQL", help="Filter condition.")
@schema_option
@encryption_option
@running_options
def replay(topic: str, since: Position | None, until: Position | None, **options: Any) -> None:
    """Replay records of a time range, or dead letters, to a topic.

    Stops at the current end of the topic. Started again, it continues with new records.
    """
    from flymq.spark.jobs.replay import ReplayJob

    times = {"since_ms": _time_ms(since, "'--since'"), "until_ms": _time_ms(until, "'--until'")}
    _start(ReplayJob, options, topic=topic, **times)


@click.command(cls=BrokerCommand)
@click.argument("topic")
@click.option("--source", required=True, metavar="HOST:PORT", help="Source cluster; --server is the target.")
@click.option("--kafka", "is_kafka", is_flag=True, help="The source is a Kafka cluster; needs confluent-kafka.")
@click.option(
    "--source-set",
    multiple=True,
    metavar="NAME=VALUE",
    help="Connection setting of the source: username, password_file, tls_ca_file …, or a Kafka client property.",
)
@click.option("--to", metavar="TOPIC", help="Target topic.  [default: the same name]")
@start_option
@batch_records_option
@endless_options("1s")
@running_options
def mirror(topic: str, source: str, is_kafka: bool, source_set: tuple[str, ...], **options: Any) -> None:
    """Copy a topic from another cluster, exactly once.

    Keeps partitions, keys, values, headers, timestamps, and the order within a partition.
    """
    from flymq.spark.jobs.connection import Connection
    from flymq.spark.jobs.mirror import MirrorJob

    settings = dict(parse_assignment(text, "--source-set") for text in source_set)
    if is_kafka:
        connection, kafka_settings = Connection(server=source), settings
    else:
        if unknown := settings.keys() - set(Connection.__struct_fields__):
            known = ", ".join(Connection.__struct_fields__[1:])
            raise click.UsageError(f"--source-set does not take {', '.join(sorted(unknown))} for FlyMQ, only {known}.")
        connection, kafka_settings = msgspec.convert({**settings, "server": source}, Connection, strict=False), {}
    protocol = "kafka" if is_kafka else "flymq"
    _start(MirrorJob, options, topic=topic, source=connection, protocol=protocol, kafka_settings=kafka_settings)


JOB_COMMANDS = (archive, restore, aggregate, transform, compact, replay, mirror)
