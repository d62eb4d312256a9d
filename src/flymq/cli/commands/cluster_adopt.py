"""`flymq cluster adopt`: make a single broker the first one of a cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from flymq.cli.options import LocalCommand, parse_assignment, wants_json
from flymq.cli.output import counted, note, show
from flymq.host.host import system_host
from flymq.server.adopt_broker import AdoptedBroker, adopt_broker
from flymq.server.settings import load_config


@click.command(cls=LocalCommand)
@click.option("--data-dir", metavar="DIR", help="Data directory of the stopped broker.  [default: flymq-data]")
@click.option("--id", "broker_id", type=int, required=True, metavar="N", help="Id of the broker in the cluster.")
@click.option("--etcd", metavar="URL[,URL]", help="The etcd of the cluster.")
@click.option("--name", metavar="NAME", help="Name of the cluster in etcd.  [default: flymq]")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Instead of --etcd: data directory for `flymq server start --brokers`. The broker's own is moved into it.",
)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Settings file, TOML.")
@click.option(
    "--set", "assignments", multiple=True, metavar="SECTION.NAME=VALUE", help="Any other setting; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def adopt(
    data_dir: str | None,
    broker_id: int,
    etcd: str | None,
    name: str | None,
    into: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Make a single broker, which is stopped, the first broker of a cluster.

    Its topics, settings, groups and transactions stay as they are. The metadata moves from the data directory into
    etcd, where the cluster must not have any yet. Then the broker starts with --id and --etcd, and others can join it.
    If the command is interrupted, run it again.
    """
    flags: dict[str, Any] = dict(parse_assignment(text) for text in assignments)
    given = {"broker.data_dir": data_dir, "broker.id": broker_id, "cluster.etcd": etcd, "cluster.name": name}
    flags.update((setting, value) for setting, value in given.items() if value is not None)
    settings = load_config(file=config, environ=os.environ, flags=flags)
    if settings.is_clustered == (into is not None):
        raise click.UsageError("Give either --etcd or --into.")
    target = None if into is None else into.absolute()
    _show(asyncio.run(adopt_broker(system_host(), settings, into=target, dry_run=dry_run)), dry_run=dry_run)


def _show(found: AdoptedBroker, *, dry_run: bool) -> None:
    rows = list(found.partitions.items())
    data = {
        "cluster_id": found.cluster_id,
        "broker": found.broker_id,
        "data_dir": str(found.data_dir),
        "topics": [{"topic": topic, "partitions": count} for topic, count in rows],
        "kept_aside": [str(path) for path in found.kept_aside],
    }
    if rows or wants_json():
        show(data, [("TOPIC", "PARTITIONS"), *rows])
    topics = counted(len(rows), "topic")
    if dry_run:
        note(
            f"Nothing was changed. Broker {found.broker_id} would be that of {topics}. Run without --dry-run to do it."
        )
        return
    if not rows:
        note("The metadata was copied before.")
    for path in found.kept_aside:
        note(f"Kept: {path}")
    note(f"Broker {found.broker_id} of the cluster {found.cluster_id} has its data in {found.data_dir}.")
