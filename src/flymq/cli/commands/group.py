"""`flymq group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from typing import Any

import click

from flymq.cli.connection import complete_topics, confirm, connect
from flymq.cli.formats.start_position import Kind, Position, position_option
from flymq.cli.formats.units import show_duration_ms
from flymq.cli.options import BrokerCommand, Noun, wants_json
from flymq.cli.output import counted, note, show
from flymq.client.descriptions import GroupDescription
from flymq.client.sync.client import FlyMQClient
from flymq.model.names import TopicPartition

_UNKNOWN = "-"


@click.group(cls=Noun)
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list", cls=BrokerCommand)
def list_() -> None:
    """List all consumer groups."""
    with connect() as client:
        groups = client.admin.list_groups()
    rows = [(found.name, found.state, found.members) for found in groups]
    show([found._asdict() for found in groups], [("GROUP", "STATE", "MEMBERS"), *rows])
    if not groups and not wants_json():
        note("There are no groups yet: a group is created by its first member or commit.")


@group.command(cls=BrokerCommand)
@click.argument("group")
def describe(group: str) -> None:
    """Show the members, assignments, committed offsets and lag of a group."""
    with connect() as client:
        found = client.admin.describe_group(group)
    if not wants_json():
        click.echo(f"Group {found.name}: {found.state}, {counted(len(found.members), 'member')}\n")
    show(_as_json(found), _position_table(found))


@group.command(cls=BrokerCommand)
@click.argument("group")
@click.option(
    "--to",
    callback=position_option,
    metavar="POSITION",
    required=True,
    help="earliest, latest, a time as in `consume --from`, or an offset.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="Only this topic; repeatable.  [default: all with committed offsets]",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Partition to reset to an offset.")
@click.option("--dry-run", is_flag=True, help="Show the new offsets without committing them.")
def reset(group: str, to: Position, topics: tuple[str, ...], partition: int | None, dry_run: bool) -> None:
    """Reset the committed offsets of a group. It must have no members."""
    at = _target(to, partition)
    if isinstance(at, dict) and len(topics) != 1:
        raise click.UsageError("An offset applies to a single partition: give --topic and --partition.")
    moved: dict[TopicPartition, int] = {}
    with connect() as client:
        for topic in topics or _topics_read(client, group):
            moved |= client.admin.reset_offsets(group, topic, at, dry_run=dry_run)
    places = [{"topic": name.topic, "partition": name.partition, "offset": offset} for name, offset in moved.items()]
    show(places, [("TOPIC", "PARTITION", "NEXT OFFSET"), *(tuple(place.values()) for place in places)])
    if dry_run:
        note("Dry run: nothing was changed.")


@group.command(cls=BrokerCommand)
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(groups: tuple[str, ...], yes: bool) -> None:
    """Delete groups and their committed offsets. They must have no members."""
    confirm(f"Delete {', '.join(groups)} and their committed offsets?", is_sure=yes)
    with connect() as client:
        for name in groups:
            client.admin.delete_group(name)
            note(f"Deleted {name}.")


def _target(to: Position, partition: int | None) -> str | int | dict[int, int]:
    """Return the target as the SDK takes it."""
    if to.kind is Kind.LAST:
        raise click.UsageError("--to takes earliest, latest, a time or an offset.")
    if (to.kind is Kind.OFFSET) != (partition is not None):
        raise click.UsageError("An offset needs --partition, and --partition an offset: offsets are per partition.")
    if partition is not None:
        return {partition: to.number}
    return to.number if to.kind is Kind.TIME else to.kind.value


def _topics_read(client: FlyMQClient, group: str) -> list[str]:
    return sorted({position.topic for position in client.admin.describe_group(group).positions})


def _position_table(found: GroupDescription) -> list[tuple[object, ...]]:
    members = {member.member: f"{member.client_id} {member.host}".strip() for member in found.members}
    return [
        ("TOPIC", "PARTITION", "NEXT OFFSET", "END", "LAG", "TIME LAG", "MEMBER"),
        *(
            (
                at.topic,
                at.partition,
                _known(at.offset),
                _known(at.end_offset),
                _known(at.lag),
                show_duration_ms(at.lag_ms) if at.lag_ms >= 0 else _UNKNOWN,
                members.get(at.member, at.member) or _UNKNOWN,
            )
            for at in found.positions
        ),
    ]


def _known(number: int) -> int | str:
    return number if number >= 0 else _UNKNOWN


def _as_json(found: GroupDescription) -> dict[str, Any]:
    return {
        **found._asdict(),
        "members": [
            {**member._asdict(), "partitions": [name._asdict() for name in member.partitions]}
            for member in found.members
        ],
        "positions": [position._asdict() for position in found.positions],
    }
