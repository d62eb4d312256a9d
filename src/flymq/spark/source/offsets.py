"""Offsets of partitions, in the JSON of Spark's options and checkpoints.

{"orders": {"0": 23, "1": -2}}        -2: the earliest, -1: the latest
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from flymq.model.errors import DataLost, InvalidOption, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.wire.native.messages.records import AT_EARLIEST, AT_LATEST

Offsets: TypeAlias = dict[TopicPartition, int]
"""An offset per partition; those of a query are the next offsets to read."""

POSITIONS = {"earliest": AT_EARLIEST, "latest": AT_LATEST}


class Wanted(NamedTuple):
    """A start or end position: one for all partitions, or one per partition."""

    everywhere: int | None
    each: Offsets
    is_time: bool
    option: str
    """The option it comes from, for error messages."""

    def at(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset, position or time for each of these partitions."""
        names = set(partitions)
        if self.everywhere is not None:
            return dict.fromkeys(sorted(names), self.everywhere)
        if missing := sorted(names - self.each.keys()):
            raise InvalidOption(
                f"{self.option} has no offset for {', '.join(map(str, missing))}",
                hint="Set an offset for every partition that is read; -2 is earliest, -1 is latest.",
            )
        if strangers := sorted(self.each.keys() - names):
            raise InvalidOption(
                f"{self.option} contains {', '.join(map(str, strangers))}, which the query does not read",
                hint="Set offsets only for the partitions that are read.",
            )
        return dict(self.each)


def wanted_offsets(option: str, value: str) -> Wanted:
    """Parse "earliest", "latest" or offsets of partitions."""
    if value.lower() in POSITIONS:
        return Wanted(POSITIONS[value.lower()], {}, is_time=False, option=option)
    each = parse_offsets(option, value)
    for partition, offset in each.items():
        if offset < AT_EARLIEST:
            raise InvalidOption(f"{option} has the invalid offset {offset} for {partition}")
    return Wanted(None, each, is_time=False, option=option)


def wanted_times(option: str, value: str) -> Wanted:
    """Parse timestamps of partitions."""
    each = parse_offsets(option, value)
    for partition, time_ms in each.items():
        if time_ms < 0:
            raise InvalidOption(f"{option} has the timestamp {time_ms} for {partition}, which is before the Unix epoch")
    return Wanted(None, each, is_time=True, option=option)


def parse_offsets(option: str, value: str) -> Offsets:
    """Parse `{"topic": {"0": 23}}`."""
    hint = 'Write JSON such as {"orders": {"0": 23, "1": -2}}.'
    found: Offsets = {}
    for topic, offsets in _parse_object(option, value, hint).items():
        if not isinstance(offsets, dict):
            raise InvalidOption(f"{option} has no offsets for the topic {topic!r}", hint=hint)
        for partition, offset in offsets.items():
            if not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
                raise InvalidOption(f"{option} has {partition!r}: {offset!r} for the topic {topic!r}", hint=hint)
            found[TopicPartition(topic, int(partition))] = offset
    return found


def parse_partitions(option: str, value: str) -> list[TopicPartition]:
    """Parse `{"topic": [0, 1]}`."""
    hint = 'Write JSON such as {"orders": [0, 1]}.'
    found: list[TopicPartition] = []
    for topic, partitions in _parse_object(option, value, hint).items():
        if not isinstance(partitions, list) or not all(type(number) is int and number >= 0 for number in partitions):
            raise InvalidOption(f"{option} has {partitions!r} for the topic {topic!r}", hint=hint)
        found += [TopicPartition(topic, number) for number in partitions]
    return sorted(set(found))


def _parse_object(option: str, value: str, hint: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise InvalidOption(f"{option} is not valid JSON: {error}", hint=hint) from None
    if not isinstance(parsed, dict) or not parsed:
        raise InvalidOption(f"{option} contains no topic", hint=hint)
    return parsed


def to_spark(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark stores them in a checkpoint."""
    shaped: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shaped.setdefault(topic, {})[str(partition)] = offset
    return shaped


def from_spark(shaped: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_spark`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in shaped.items()
        for partition, offset in offsets.items()
    }


def within(asked: Offsets, earliest: Offsets, latest: Offsets, *, option: str, fail_on_data_loss: bool) -> Offsets:
    """Return the requested offsets; those outside the log are an error, or are moved to its nearest end."""
    checked: Offsets = {}
    for partition, offset in asked.items():
        low, high = earliest[partition], latest[partition]
        if not low <= offset <= high and fail_on_data_loss:
            raise OffsetOutOfRange(
                f"{option} has the offset {offset} for {partition}, which has {low} to {high}",
                hint="Use offsets in this range, or set failOnDataLoss to false to read the existing records.",
            )
        checked[partition] = min(max(offset, low), high)
    return checked


def lost(message: str) -> DataLost:
    """Return the error for records that a query can no longer read."""
    return DataLost(f"{message}: they were deleted by retention, or the topic was deleted and recreated")
