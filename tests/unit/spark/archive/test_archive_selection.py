"""Which records of an archive are wanted, and where groups stand after a restore."""

from __future__ import annotations

import pytest
from tests.unit.spark.archive.archives import published, written

from flymq.model.errors import ArchiveDamaged, InvalidPipeline, NotInArchive, TargetDisturbed
from flymq.model.names import TopicPartition
from flymq.spark.archive.archive import Archive
from flymq.spark.archive.manifest import by_partition
from flymq.spark.archive.restore_plan import kept_groups, moved_groups, plan_restore, rows_left, tasks_left
from flymq.spark.archive.selection import Selection, count_selected, selected

NAME = TopicPartition("orders", 0)


def offsets_of(archive: Archive, selection: Selection) -> list[int]:
    pieces = by_partition(archive.manifests())[NAME]
    found = [offset for batch in selected(archive.root, pieces, selection) for offset in batch["offset"].to_pylist()]
    assert count_selected(archive.root, pieces, selection) == len(found)
    return found


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (Selection(), range(100)),
        (Selection(until_ms=60), range(60)),
        (Selection(since_ms=60), range(60, 100)),
        (Selection(since_ms=30, until_ms=70), range(30, 70)),
        (Selection(start_offsets={0: 10}, end_offsets={0: 90}), range(10, 90)),
        (Selection(start_offsets={0: 50}, until_ms=55), range(50, 55)),
        (Selection(start_offsets={1: 50}), range(100)),
        (Selection(until_ms=0), range(0)),
        (Selection(since_ms=1000), range(0)),
    ],
)
def test_exactly_the_wanted_records_are_counted_and_read(archive: Archive, selection: Selection, wanted: range) -> None:
    assert offsets_of(archive, selection) == list(wanted)


def test_a_range_that_two_jobs_archived_is_read_once(archive: Archive) -> None:
    published(archive, 0, [written(archive.root, 40, 120, attempt="b")], query="another")
    assert offsets_of(archive, Selection()) == list(range(120))
    assert offsets_of(archive, Selection(since_ms=50)) == list(range(50, 120))


def test_a_restore_goes_on_with_the_first_record_that_is_not_there(archive: Archive) -> None:
    plan = plan_restore(archive, selection=Selection(until_ms=90))
    [task] = tasks_left(plan, {NAME: 40}, {NAME: 40 + 65})
    assert [offset for batch in rows_left(task) for offset in batch["offset"].to_pylist()] == list(range(65, 90))
    assert tasks_left(plan, {NAME: 40}, {NAME: 40 + 90}) == []


@pytest.mark.parametrize("end", [39, 40 + 101])
def test_a_target_that_somebody_else_has_changed_is_noticed(archive: Archive, end: int) -> None:
    with pytest.raises(TargetDisturbed):
        tasks_left(plan_restore(archive), {NAME: 40}, {NAME: end})


def test_a_group_stands_before_the_same_record_after_a_restore(archive: Archive) -> None:
    plan = plan_restore(archive, selection=Selection(since_ms=20), rename="copy")
    groups = {"g": {"orders": {0: 50}}, "far": {"orders": {0: 100}}, "other": {"elsewhere": {0: 1}}}
    moved = moved_groups(plan, {TopicPartition("copy", 0): 1000}, groups)
    assert moved == {"g": {"copy": {0: 1030}}, "far": {"copy": {0: 1080}}}


def test_groups_are_those_of_the_last_manifest_up_to_the_time(archive: Archive) -> None:
    later = archive.manifests()[-1]
    assert kept_groups(archive.manifests()) == {"billing": {"orders": {0: 5}}}
    assert kept_groups([later], until_ms=later.created_ms - 1) == {}


def test_a_topic_that_is_not_archived_is_refused_with_those_that_are(archive: Archive) -> None:
    with pytest.raises(NotInArchive) as caught:
        plan_restore(archive, ["orderz"])
    assert caught.value.hint == "It contains orders."


def test_only_one_topic_can_be_renamed(archive: Archive) -> None:
    other = archive.manifests()[0].pieces[0]
    published(archive, 2, [type(other)("users", 0, 0, 0)])
    with pytest.raises(InvalidPipeline):
        plan_restore(archive, rename="copy")


def test_a_plan_names_a_file_that_was_cut_short_unless_it_is_not_wanted(archive: Archive) -> None:
    path = archive.root / archive.manifests()[1].pieces[0].file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArchiveDamaged, match="was truncated"):
        plan_restore(archive)
    assert plan_restore(archive, selection=Selection(until_ms=60)).rows == 60
