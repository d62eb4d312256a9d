"""`flymq topic`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from flymq.cli.connection import complete_topics, confirm, connect, topic_argument
from flymq.cli.formats.units import parse_bytes, parse_duration_ms, show_bytes, show_duration_ms
from flymq.cli.options import BrokerCommand, Noun, parse_assignment, wants_json
from flymq.cli.output import aligned, counted, note, show
from flymq.client.descriptions import TopicDescription
from flymq.model.errors import TopicNotFound
from flymq.model.topic_config import TopicConfig

_set_option = click.option(
    "--set", "assignments", multiple=True, metavar="NAME=VALUE", help="A topic setting, such as retention.ms=7d."
)


class _BrokerIds(click.ParamType[tuple[int, ...]]):
    """Broker ids, separated by commas."""

    name = "brokers"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> tuple[int, ...]:
        ids = str(value).split(",")
        if not all(each.strip().isdecimal() for each in ids):
            self.fail(f"{value!r} is not a list of broker ids, such as 1,2,3.", param, context)
        return tuple(map(int, ids))


@click.group(cls=Noun)
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(cls=BrokerCommand)
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), metavar="N", help="Number of partitions.  [default: the broker's]"
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Replicas per partition.  [default: the broker's]",
)
@_set_option
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists, and leave it as it is.")
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create a topic."""
    settings = parse_settings(assignments)
    with connect() as client:
        made = client.admin.create_topic(name, partitions, replication_factor, settings, exist_ok=if_not_exists)
        described = client.admin.describe_topic(name)
    if wants_json():
        show(made._asdict(), [])
    else:
        retention = TopicConfig().with_changes(described.settings).describe_retention()
        note(f"Topic {made.name} has {counted(made.partitions, 'partition')}; {retention}.")


@topic.command("list", cls=BrokerCommand)
@click.option("--internal", is_flag=True, help="Include internal topics.")
def list_(internal: bool) -> None:
    """List all topics."""
    with connect() as client:
        topics = client.admin.list_topics(internal=internal)
    rows = [(found.name, found.partitions, found.replication_factor) for found in topics]
    show([found._asdict() for found in topics], [("TOPIC", "PARTITIONS", "REPLICAS"), *rows])
    if not topics and not wants_json():
        note("There are no topics yet. Try: flymq topic create NAME")


@topic.command(cls=BrokerCommand)
@topic_argument
def describe(topic: str) -> None:
    """Show the partitions and settings of a topic."""
    with connect() as client:
        found = client.admin.describe_topic(topic)
    if wants_json():
        show(_as_json(found), [])
        return
    rows: list[tuple[object, ...]] = [
        (
            part.partition,
            "none" if part.leader < 0 else part.leader,
            _join(part.replicas),
            _join(part.isr),
            _known(part.start_offset),
            _known(part.end_offset),
            "-" if part.size_bytes < 0 else show_bytes(part.size_bytes),
        )
        for part in found.partitions
    ]
    heading: tuple[object, ...] = ("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "SIZE")
    if any(part.elr for part in found.partitions):
        heading = (*heading, "ELIGIBLE")
        rows = [(*row, _join(part.elr)) for row, part in zip(rows, found.partitions, strict=True)]
    click.echo(f"Topic {found.name}\n")
    click.echo("\n".join(aligned([heading, *rows])))
    for part in found.partitions:
        if part.problem:
            note(part.problem)
    settings = [
        (name, value, _readable(name, value), "(topic override)" if name in found.overrides else "")
        for name, value in found.settings.items()
    ]
    click.echo("\n" + "\n".join(aligned([("SETTING", "VALUE", "", ""), *settings])))


@topic.command(cls=BrokerCommand)
@topic_argument
@_set_option
@click.option("--unset", "unset", multiple=True, metavar="NAME", help="Reset a setting to the broker's default.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), metavar="N", help="Replicas per partition.")
@click.option("--brokers", type=_BrokerIds(), metavar="ID[,ID]", help="Move all replicas to these brokers.")
@click.option("--no-wait", is_flag=True, help="Do not wait until replicas are copied.")
def alter(
    topic: str,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    replication_factor: int | None,
    brokers: tuple[int, ...] | None,
    no_wait: bool,
) -> None:
    """Change the settings of a topic, or the number and place of its replicas.

    Replicas that are where they should be stay there. Clients go on writing and reading while others are copied, which
    also goes on if the command is interrupted.
    """
    changes: dict[str, str | int | float | None] = {**parse_settings(assignments), **dict.fromkeys(unset)}
    is_placed = replication_factor is not None or brokers is not None
    if not changes and not is_placed:
        raise click.UsageError(
            "Nothing to change: give --set NAME=VALUE, --unset NAME, --replication-factor N or --brokers ID,ID."
        )
    with connect() as client:
        if changes:
            client.admin.alter_topic(topic, changes)
        if is_placed:
            client.admin.place_replicas(topic, replication_factor, brokers=brokers or ())
            if not no_wait:
                client.admin.wait_until_placed(topic, _tell_left)
        described = client.admin.describe_topic(topic)
    changed: dict[str, object] = {name: described.settings[name] for name in changes}
    if is_placed:
        changed["replication.factor"] = described.replication_factor
    show(changed, [("SETTING", "VALUE"), *changed.items()])


def _tell_left(left: int) -> None:
    if left:
        note(f"The replicas of {counted(left, 'partition')} are being copied.")


@topic.command(cls=BrokerCommand)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--if-exists", is_flag=True, help="Succeed if a topic does not exist.")
def delete(topics: tuple[str, ...], yes: bool, if_exists: bool) -> None:
    """Delete topics and all their messages."""
    confirm(f"Delete {', '.join(topics)} and all their messages?", is_sure=yes)
    with connect() as client:
        for name in topics:
            try:
                client.delete_topic(name)
                note(f"Deleted {name}.")
            except TopicNotFound:
                if not if_exists:
                    raise


@topic.command("add-partitions", cls=BrokerCommand)
@topic_argument
@click.option("--total", type=click.IntRange(min=1), required=True, metavar="N", help="New total number of partitions.")
def add_partitions(topic: str, total: int) -> None:
    """Add partitions to a topic.

    Existing messages stay where they are; new messages with the same key may go to another partition than before.
    """
    with connect() as client:
        client.admin.add_partitions(topic, total)
    note(f"Topic {topic} has {counted(total, 'partition')}.")


def parse_settings(assignments: Iterable[str]) -> dict[str, str | int | float | None]:
    """Parse topic settings from NAME=VALUE; durations and sizes may have a unit."""
    return {name: _plain_amount(name, value) for name, value in map(parse_assignment, assignments)}


def _plain_amount(name: str, value: str) -> str | int:
    """Convert 7d to milliseconds and 1GiB to bytes; the broker validates everything else."""
    try:
        if name.endswith(".ms"):
            return parse_duration_ms(value)
        if name.endswith(".bytes"):
            return parse_bytes(value)
    except ValueError:
        pass
    return value


def _readable(name: str, value: str | int | float | None) -> str:
    if not isinstance(value, int) or value < 0:
        return ""
    if name.endswith(".ms") and value >= 1000:
        return show_duration_ms(value)
    return show_bytes(value) if name.endswith(".bytes") and value >= 1024 else ""


def _as_json(found: TopicDescription) -> dict[str, Any]:
    return {
        **found._asdict(),
        "topic_id": found.topic_id.hex(),
        "partitions": [part._asdict() for part in found.partitions],
        "settings": dict(found.settings),
    }


def _known(offset: int) -> object:
    return "-" if offset < 0 else offset


def _join(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
