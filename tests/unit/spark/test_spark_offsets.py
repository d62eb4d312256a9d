"""Offsets as users write them and checkpoints keep them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.model.errors import InvalidOption, OffsetOutOfRange
from flymq.model.names import TopicPartition
from flymq.spark.source.offsets import (
    from_spark,
    parse_offsets,
    parse_partitions,
    to_spark,
    wanted_offsets,
    wanted_times,
    within,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@given(st.dictionaries(st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 99)), st.integers(0)))
def test_offsets_come_back_from_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_spark(to_spark(offsets)) == offsets


def test_positions_and_offsets_are_understood() -> None:
    assert wanted_offsets("startingOffsets", "Earliest").at([A0, A1]) == {A0: -2, A1: -2}
    assert wanted_offsets("startingOffsets", "latest").at([A0]) == {A0: -1}
    each = wanted_offsets("startingOffsets", '{"a": {"0": 23, "1": -1}, "b": {"0": -2}}')
    assert each.at([A0, A1, B0]) == {A0: 23, A1: -1, B0: -2}
    assert wanted_times("startingOffsetsByTimestamp", '{"a": {"0": 1000}}').at([A0]) == {A0: 1000}
    assert parse_partitions("assign", '{"b": [0], "a": [1, 0, 1]}') == [A0, A1, B0]


def test_offsets_name_every_partition_that_is_read_and_no_other() -> None:
    wanted = wanted_offsets("startingOffsets", '{"a": {"0": 1}, "b": {"0": 1}}')
    with pytest.raises(InvalidOption, match="startingOffsets has no offset for a-1"):
        wanted.at([A0, A1, B0])
    with pytest.raises(InvalidOption, match="startingOffsets contains b-0, which the query does not read"):
        wanted.at([A0])


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}']
)
def test_what_is_no_offsets_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidOption, match="startingOffsets") as refused:
        parse_offsets("startingOffsets", text)
    assert '{"orders": {"0": 23, "1": -2}}' in refused.value.hint


@pytest.mark.parametrize("text", ["x", '{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}'])
def test_what_is_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="assign"):
        parse_partitions("assign", text)


def test_offsets_and_times_below_all_meaning_are_refused() -> None:
    with pytest.raises(InvalidOption, match="offset -3"):
        wanted_offsets("startingOffsets", '{"a": {"0": -3}}')
    with pytest.raises(InvalidOption, match="before the Unix epoch"):
        wanted_times("startingOffsetsByTimestamp", '{"a": {"0": -1}}')


def test_offsets_outside_the_log_are_refused_or_moved_to_its_nearer_end() -> None:
    earliest, latest = {A0: 10}, {A0: 20}
    for offset in (10, 15, 20):
        assert within({A0: offset}, earliest, latest, option="o", fail_on_data_loss=True) == {A0: offset}
    for offset, moved in ((9, 10), (21, 20)):
        assert within({A0: offset}, earliest, latest, option="o", fail_on_data_loss=False) == {A0: moved}
        with pytest.raises(OffsetOutOfRange, match=f"o has the offset {offset} for a-0, which has 10 to 20"):
            within({A0: offset}, earliest, latest, option="o", fail_on_data_loss=True)
