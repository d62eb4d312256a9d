"""`flymq consume`: print the messages of a topic.

Existing messages are printed in timestamp order: each partition keeps its order, and the partitions are merged. With
`--follow`, new messages are then printed as they arrive.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import TypedDict, Unpack

import click

from flymq.cli.connection import connect, encryption_option, encryption_settings, topic_argument
from flymq.cli.formats.messages import COLUMNS, Column, for_terminal, text_of, to_json, to_raw
from flymq.cli.formats.start_position import TAKES, Kind, Position, position_option
from flymq.cli.options import BrokerCommand, wants_json
from flymq.client.records import ConsumerRecord
from flymq.client.sync.client import FlyMQClient
from flymq.client.sync.consumer import Consumer
from flymq.model.errors import PartitionNotFound, TopicNotFound
from flymq.model.names import TopicPartition

Spans = Mapping[TopicPartition, range]
"""Offsets to read of each partition."""

_READ_AHEAD_BYTES = 16 << 20  # of all partitions
_READ_AHEAD_BYTES_MIN = 64 << 10  # per partition
_RECORDS_PER_POLL = 5_000
_POLL_MS = 200

_OUTPUT = click.Choice(["text", "json", "raw"])


class _Options(TypedDict):
    start: Position
    follow: bool
    count_max: int | None
    partitions: tuple[int, ...]
    group: str | None
    output: str | None
    columns: tuple[str, ...]
    verbose: bool
    encryption_key_file: Path | None


def _parse_columns(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in COLUMNS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(COLUMNS)}.")
    return names


@click.command(cls=BrokerCommand)
@topic_argument
@click.option(
    "--from",
    "start",
    callback=position_option,
    metavar="POSITION",
    default="earliest",
    show_default=True,
    help=f"Start position: {TAKES}.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new messages as they arrive, until Ctrl-C.")
@click.option("-n", "--max", "count_max", type=click.IntRange(min=0), metavar="N", help="Stop after N messages.")
@click.option(
    "-p", "--partition", "partitions", multiple=True, type=int, metavar="N", help="Only this partition; repeatable."
)
@click.option(
    "-g", "--group", metavar="NAME", help="Join this consumer group, and commit the offsets of what is printed."
)
@click.option(
    "-o",
    "--output",
    type=_OUTPUT,
    help="One line per message, one JSON object per line, or only the bytes of the values.",
)
@click.option(
    "--show",
    "columns",
    default="",
    metavar="LIST",
    callback=_parse_columns,
    help=f"Columns to print before each value: any of {','.join(COLUMNS)}.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print all of these columns.")
@encryption_option
def consume(topic: str, **options: Unpack[_Options]) -> None:
    """Consume and print the messages of a topic.

    Stops at the current end of the topic, unless --follow is given.
    """
    with connect(**encryption_settings(options["encryption_key_file"])) as client:
        if options["group"] is None:
            _print(_records(client, topic, options), options)
            return
        with _member(client, topic, options["group"], options) as member:
            _print(_group_records(member, options), options)


def _print(records: Iterable[ConsumerRecord], options: _Options) -> None:
    as_bytes = _format(options)
    out = sys.stdout.buffer
    for record in islice(records, options["count_max"]):
        out.write(as_bytes(record))
        if options["follow"]:
            out.flush()
    out.flush()


def _format(options: _Options) -> Column:
    """Return the function that formats a record."""
    output = options["output"] or ("json" if wants_json() else "text")
    if output == "json":
        return to_json
    if output == "raw":
        return to_raw
    names = COLUMNS if options["verbose"] else options["columns"]
    to_text = text_of([COLUMNS[name] for name in COLUMNS if name in names])
    return (lambda record: for_terminal(to_text(record))) if sys.stdout.isatty() else to_text


def _records(client: FlyMQClient, topic: str, options: _Options) -> Iterator[ConsumerRecord]:
    """Yield the existing records, then new ones with --follow. The consumers are closed with the client."""
    partitions = options["partitions"] or None
    try:
        spans = _spans(client, topic, options["start"], partitions)
    except TopicNotFound:
        if not options["follow"]:
            raise
        # It does not exist yet: wait for it, where the broker creates topics on first use.
        return iter(client.consumer(topic, partitions=partitions))
    backlog = _backlog(client, spans)
    return chain(backlog, _follow(client, topic, spans)) if options["follow"] else backlog


def _spans(client: FlyMQClient, topic: str, start: Position, partitions: Sequence[int] | None) -> Spans:
    """Return the offsets from a position to the current end of each partition."""
    first = client.admin.earliest_offsets(topic)
    ends = client.admin.latest_offsets(topic)
    if start.kind is Kind.TIME:
        found = client.admin.offsets_at(topic, start.number)
        starts = {name: offset if offset >= 0 else ends[name] for name, offset in found.items()}
    elif start.kind is Kind.LAST:
        starts = {name: end - start.number for name, end in ends.items()}
    elif start.kind is Kind.OFFSET:
        starts = dict.fromkeys(ends, start.number)
    else:
        starts = dict(first if start.kind is Kind.EARLIEST else ends)
    spans = {name: range(min(max(starts[name], first[name]), end), end) for name, end in ends.items()}
    return spans if partitions is None else {name: spans[name] for name in _chosen(topic, spans, partitions)}


def _chosen(topic: str, known: Iterable[TopicPartition], partitions: Sequence[int]) -> list[TopicPartition]:
    names = [TopicPartition(topic, number) for number in sorted(set(partitions))]
    for name in names:
        if name not in known:
            raise PartitionNotFound(f"topic {topic!r} has no partition {name.partition}")
    return names


def _backlog(client: FlyMQClient, spans: Spans) -> Iterator[ConsumerRecord]:
    """Yield the records in the spans by timestamp, and within a partition in offset order."""
    full = {name: span for name, span in spans.items() if span}
    ahead_bytes = max(_READ_AHEAD_BYTES // max(len(full), 1), _READ_AHEAD_BYTES_MIN)
    streams = [_read(client, name, span, ahead_bytes) for name, span in full.items()]
    return heapq.merge(*streams, key=attrgetter("timestamp"))


def _read(client: FlyMQClient, name: TopicPartition, span: range, ahead_bytes: int) -> Iterator[ConsumerRecord]:
    consumer = client.consumer(
        name.topic,
        partitions=[name.partition],
        prefetch_bytes=ahead_bytes,
        partition_bytes_max=min(ahead_bytes, 1 << 20),
    )
    consumer.seek(*name, span.start)
    while consumer.position(*name) < span.stop:  # the last offsets may be transaction markers, not records
        for record in consumer.poll(_POLL_MS, _RECORDS_PER_POLL):
            if record.offset >= span.stop:
                break
            yield record
    consumer.close()


def _follow(client: FlyMQClient, topic: str, spans: Spans) -> Iterator[ConsumerRecord]:
    consumer = client.consumer(topic, partitions=[name.partition for name in spans])
    for name, span in spans.items():
        consumer.seek(*name, span.stop)
    yield from consumer


# --- in a group -----------------------------------------------------------------------------------------------------


def _member(client: FlyMQClient, topic: str, group: str, options: _Options) -> Consumer:
    """Join the group. It starts at its committed offsets; without them, at --from."""
    start = options["start"].kind
    if start not in (Kind.EARLIEST, Kind.LATEST):
        raise click.UsageError(
            "With --group, --from takes earliest or latest; use `flymq group reset` for other positions."
        )
    return client.consumer(topic, group=group, partitions=options["partitions"] or None, start=start.value)


def _group_records(member: Consumer, options: _Options) -> Iterator[ConsumerRecord]:
    """Yield the records of the assignment. The next poll marks the previous records as processed: flush first."""
    if options["follow"]:
        yield from member
        return
    left = options["count_max"]
    while left is None or left > 0:
        records = member.poll(_POLL_MS, _RECORDS_PER_POLL if left is None else min(left, _RECORDS_PER_POLL))
        yield from records
        sys.stdout.flush()
        left = None if left is None else left - len(records)
        lag = member.lag()
        if not records and lag and not any(lag.values()) and len(lag) == len(member.assignment()):
            return
