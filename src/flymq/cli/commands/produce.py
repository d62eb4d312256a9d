"""`flymq produce`: produce messages from arguments, lines of stdin or files."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypedDict, Unpack

import click
import msgspec

from flymq.cli.connection import connect, encryption_option, encryption_settings, topic_argument
from flymq.cli.formats.messages import Message, from_json
from flymq.cli.options import BrokerCommand, acks_option, compression_option, parse_assignment, wants_json
from flymq.cli.output import counted, note
from flymq.client.deliveries import Delivery
from flymq.client.records import RecordMetadata
from flymq.client.settings import ClientSettings
from flymq.client.sync.producer import Producer
from flymq.model.errors import FlyMQError
from flymq.record.record import Header

_PENDING_MAX = 100_000
"""Messages in flight."""

_LINGER_MS = 5  # lines arrive faster than acknowledgements: batch them

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Options(TypedDict):
    key: str | None
    key_separator: str | None
    headers: tuple[str, ...]
    partition: int | None
    files: tuple[Path, ...]
    is_json: bool
    acks: str
    compression: str
    encryption_key_file: Path | None


@click.command(cls=BrokerCommand)
@topic_argument
@click.argument("values", nargs=-1)
@click.option("-k", "--key", metavar="TEXT", help="Key of every message; equal keys go to the same partition.")
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Split each value or line into key and value at this separator."
)
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="Add a header; repeatable.")
@click.option("-p", "--partition", type=int, metavar="N", help="Write to this partition.")
@click.option("-f", "--file", "files", multiple=True, type=_FILE, help="Send a whole file as one message; repeatable.")
@click.option("--json", "is_json", is_flag=True, help="Each value or line is a message as `consume -o json` prints it.")
@acks_option
@compression_option
@encryption_option
def produce(topic: str, values: tuple[str, ...], **options: Unpack[_Options]) -> None:
    """Produce messages to a topic.

    The messages are the VALUES, or, without any, the lines of stdin.
    """
    if options["is_json"] and (options["key"] or options["key_separator"] or options["headers"]):
        raise click.UsageError("With --json, keys and headers are part of the message.")
    settings: ClientSettings = {
        "acks": options["acks"],
        "compression": options["compression"],
        "linger_ms": _LINGER_MS,
        **encryption_settings(options["encryption_key_file"]),
    }
    prints_offsets = wants_json()
    written = 0
    with connect(**settings) as client:
        try:
            for metadata in _send(client.default_producer(), topic, _messages(values, options), options["partition"]):
                written += 1
                if prints_offsets:
                    click.echo(_as_json(metadata))
        except FlyMQError:
            if written:
                note(f"{counted(written, 'message')} acknowledged before this error:")
            raise
    if not prints_offsets:
        note(f"Produced {counted(written, 'message')} to {_shown(metadata) if written == 1 else topic}.")


def _send(
    producer: Producer, topic: str, messages: Iterable[Message], partition: int | None
) -> Iterator[RecordMetadata]:
    """Send everything and yield the metadata, in the order of the messages, as they are acknowledged."""
    pending: deque[Delivery] = deque()
    for message in messages:
        pending.append(
            producer.send(
                topic,
                message.value,
                message.key,
                partition=partition,
                headers=message.headers,
                timestamp=message.timestamp,
            )
        )
        while pending and (pending[0].done() or len(pending) > _PENDING_MAX):
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _messages(values: Iterable[str], options: _Options) -> Iterator[Message]:
    key = _encoded(options["key"])
    separator = _encoded(options["key_separator"])
    headers: list[Header] = [
        (name, value.encode()) for name, value in (parse_assignment(text, "--header") for text in options["headers"])
    ]
    for number, line in enumerate(_lines(values, options["files"]), start=1):
        try:
            if options["is_json"]:
                yield from_json(line)
            elif separator is None:
                yield Message(key, line, headers)
            else:
                yield Message(*_split(line, separator), headers)
        except ValueError as error:
            raise click.UsageError(f"Message {number} is invalid: {error}.") from None
    for file in options["files"]:
        yield Message(key, file.read_bytes(), headers)


def _lines(values: Iterable[str], files: Iterable[Path]) -> Iterator[bytes]:
    """Yield the values, or the lines of stdin if neither values nor files are given."""
    if values or files:
        yield from (value.encode() for value in values)
        return
    if sys.stdin.isatty():
        note("One message per line; end with Ctrl-D.")
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"it does not contain {separator.decode()!r}")
    return key, value


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _as_json(metadata: RecordMetadata) -> bytes:
    return msgspec.json.encode({"topic": metadata.topic, "partition": metadata.partition, "offset": metadata.offset})


def _shown(metadata: RecordMetadata) -> str:
    where = f"{metadata.topic}, partition {metadata.partition}"
    return where if metadata.offset < 0 else f"{where}, offset {metadata.offset}"
