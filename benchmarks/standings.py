"""The results of the peers' suite by system and durability level, and where FlyMQ is behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.peers import flymq
from benchmarks.peers.contender import Promise
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.suite import PRODUCE, SINGLY
from benchmarks.row import Row

Measure = tuple[str, str]
"""What was measured, and its unit."""
_MORE_IS_BETTER = "msgs/s"
_LEVEL = 1.1
"""Ratios nearer to one than this are called level."""


class Standing(NamedTuple):
    """One system under one promise."""

    name: str
    settings: str
    values: dict[Measure, float]


class Gap(NamedTuple):
    """A measure in which a peer is better than FlyMQ, and by which factor."""

    promise: Promise
    what: str
    unit: str
    peer: str
    ours: float
    theirs: float
    factor: float


def standings(rows: Sequence[Row], promise: Promise) -> list[Standing]:
    """Return all systems, FlyMQ's ways first. Beside Kafka it spoke Kafka's protocol, beside the others its own."""
    ours: dict[str, Standing] = {}
    theirs: dict[str, Standing] = {}
    for entry in rows:
        what = _measured(entry, promise)
        if what is None or entry["peer"] is None or entry["peer_value"] is None:
            continue
        if what == SINGLY:
            _of(ours, flymq.SINGLE, "").values[PRODUCE, entry["unit"]] = entry["ours"]
            continue
        way = flymq.AS_KAFKA if entry["peer"] == Kafka.name else flymq.BATCHES
        _of(ours, way, "").values[what, entry["unit"]] = entry["ours"]
        _of(theirs, entry["peer"], entry.get("note", "")).values[what, entry["unit"]] = entry["peer_value"]
    return [*sorted(ours.values(), key=lambda standing: flymq.WAYS.index(standing.name)), *theirs.values()]


def gaps(rows: Sequence[Row]) -> list[Gap]:
    """Return where FlyMQ is behind, the largest gap first."""
    found = []
    for promise in Promise:
        for entry in rows:
            what = _measured(entry, promise)
            if what is None or not entry["ratio"] or entry["peer"] is None or entry["peer_value"] is None:
                continue
            factor = 1 / entry["ratio"] if entry["unit"] == _MORE_IS_BETTER else entry["ratio"]
            if factor > _LEVEL:
                values = (entry["unit"], entry["peer"], entry["ours"], entry["peer_value"], factor)
                found.append(Gap(promise, what, *values))
    return sorted(found, key=lambda gap: -gap.factor)


def _measured(entry: Row, promise: Promise) -> str | None:
    """Return what the row measures if it is about this promise."""
    name, _, what = entry["bench"].partition(": ")
    return what if name == promise.value else None


def _of(known: dict[str, Standing], name: str, settings: str) -> Standing:
    return known.setdefault(name, Standing(name, settings, {}))
