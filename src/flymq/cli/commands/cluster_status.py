"""`flymq cluster status`: the brokers, and the partitions that have no leader or replicas that are behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from flymq.cli.connection import connect
from flymq.cli.exit_codes import ExitCode
from flymq.cli.formats.units import show_duration_ms
from flymq.cli.options import BrokerCommand, wants_json
from flymq.cli.output import aligned, counted, note, show
from flymq.client.descriptions import BrokerState, ClusterState, PartitionProblem, ReplicaLag


@click.command(cls=BrokerCommand)
def status() -> None:
    """Show the brokers, and partitions that have no leader or replicas that are behind.

    Any broker answers for the whole cluster. The exit code is 1 if a partition is offline: nobody can write to it or
    read from it.
    """
    with connect() as client:
        found = client.admin.cluster_state()
    if wants_json():
        show(_as_json(found), [])
    else:
        _print(found)
    if found.offline:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _print(found: ClusterState) -> None:
    click.echo(f"Cluster {found.cluster_id}\n")
    brokers = [
        (each.broker, f"{each.host}:{each.port}", each.rack or "-", _state(each), _role(each, found))
        for each in found.brokers
    ]
    click.echo("\n".join(aligned([("BROKER", "ADDRESS", "RACK", "STATE", ""), *brokers])))
    click.echo(
        f"\n{counted(found.topics, 'topic')}, {counted(found.partitions, 'partition')}: {found.offline} offline, "
        f"{found.under_replicated} under-replicated, {found.under_min_isr} with fewer in-sync replicas than "
        "min.insync.replicas"
    )
    if found.problems:
        rows = [_row(each) for each in found.problems]
        heading = ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "IN SYNC", "ELIGIBLE", "BEHIND")
        click.echo("\n" + "\n".join(aligned([heading, *rows])))
    if found.controller < 0:
        note("There is no controller now: leaders do not change until one is elected.")
    if found.offline:
        note(f"{counted(found.offline, 'partition is', 'partitions are')} offline: start the brokers in IN SYNC again.")


def _state(broker: BrokerState) -> str:
    if not broker.live:
        return "fenced"
    return "draining" if broker.draining else "live"


def _role(broker: BrokerState, found: ClusterState) -> str:
    return "controller" if broker.broker == found.controller else ""


def _row(problem: PartitionProblem) -> tuple[object, ...]:
    return (
        problem.topic,
        problem.partition,
        "none" if problem.leader < 0 else problem.leader,
        _join(problem.replicas),
        _join(problem.isr),
        _join(problem.elr) or "-",
        ", ".join(_lag(lag) for lag in problem.lags if lag.broker not in problem.isr) or "-",
    )


def _lag(lag: ReplicaLag) -> str:
    if lag.records < 0:
        return f"{lag.broker}: unknown"
    return f"{lag.broker}: {counted(lag.records, 'record')}, {show_duration_ms(lag.behind_ms)}"


def _join(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))


def _as_json(found: ClusterState) -> dict[str, Any]:
    problems = [{**each._asdict(), "lags": [lag._asdict() for lag in each.lags]} for each in found.problems]
    return {**found._asdict(), "brokers": [each._asdict() for each in found.brokers], "problems": problems}
