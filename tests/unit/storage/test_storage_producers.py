"""What a partition remembers of its producers, and how long."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from tests.unit.storage.batches import (
    NOW_MS,
    append,
    batch,
    checkpoint,
    committed_values,
    end_transaction,
    idempotent,
    open_simulated,
    reopen,
    settings,
    sync,
    values,
)

from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import run_steps_here
from flymq.model.errors import OutOfOrderSequence, ProducerFenced
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog
from flymq.storage.producers.producer_state import DERIVED_ID_FIRST, DERIVED_MAX

SEQUENCE_MAX = (1 << 31) - 1


def close_and_reopen(disk: SimulatedDisk, log: Log) -> Log:
    log.close()
    return reopen(disk)


def kill_and_reopen(disk: SimulatedDisk, log: Log) -> Log:
    return reopen(disk)


def cut_power_and_reopen(disk: SimulatedDisk, log: Log) -> Log:
    sync(log)
    disk.cut_power()
    return reopen(disk)


def checkpoint_and_cut_power(disk: SimulatedDisk, log: Log) -> Log:
    checkpoint(log)
    disk.cut_power()
    return reopen(disk)


def lose_snapshot(disk: SimulatedDisk, log: Log) -> Log:
    log.close()
    for path in disk.paths():
        if path.suffix == ".producers":
            disk.flip_bit(path, 11)
    return reopen(disk)


def go_on(disk: SimulatedDisk, log: Log) -> Log:
    return log


ends = pytest.mark.parametrize(
    "end",
    [go_on, close_and_reopen, kill_and_reopen, cut_power_and_reopen, checkpoint_and_cut_power, lose_snapshot],
)
End = Callable[[SimulatedDisk, Log], Log]


@ends
def test_a_batch_that_comes_twice_is_answered_with_its_first_offsets(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0, "a", "b"), idempotent(7, 2, "c"))
    log = end(disk, log)
    for sequence, sent, offsets in ((0, ("a", "b"), (0, 1)), (2, ("c",), (2, 2))):
        repeated = log.append(idempotent(7, sequence, *sent), leader_epoch=0, now_ms=NOW_MS)
        assert repeated.repeated
        assert (repeated.base_offset, repeated.last_offset) == offsets
    assert values(log) == ["a", "b", "c"]


@ends
def test_a_batch_with_a_gap_before_it_is_refused(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0))
    log = end(disk, log)
    with pytest.raises(OutOfOrderSequence, match="sequence 1 is next"):
        append(log, idempotent(7, 2))
    assert append(log, idempotent(7, 1)) == [1]


@ends
def test_a_producer_of_an_older_epoch_is_fenced(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0, epoch=3))
    log = end(disk, log)
    with pytest.raises(ProducerFenced, match="at epoch 3"):
        append(log, idempotent(7, 1, epoch=2))
    with pytest.raises(OutOfOrderSequence):
        append(log, idempotent(7, 1, epoch=4))
    assert append(log, idempotent(7, 0, epoch=4)) == [1]


@ends
def test_a_marker_of_a_newer_epoch_fences_the_older_one(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0, transactional=True))
    end_transaction(log, 7, MarkerType.ABORT, epoch=1)
    log = end(disk, log)
    with pytest.raises(ProducerFenced):
        append(log, idempotent(7, 1, transactional=True))


@ends
def test_the_epoch_that_a_marker_begins_starts_with_the_sequence_zero(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0, transactional=True))
    end_transaction(log, 7, MarkerType.COMMIT, epoch=1)
    log = end(disk, log)
    with pytest.raises(OutOfOrderSequence, match="sequence 0 is next"):
        append(log, idempotent(7, 1, epoch=1, transactional=True))
    assert append(log, idempotent(7, 0, epoch=1, transactional=True)) == [2]


@ends
def test_any_sequence_may_follow_an_abort_that_leaves_the_epoch_as_it_is_and_not_a_commit(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0, transactional=True))
    end_transaction(log, 7, MarkerType.COMMIT)
    append(log, idempotent(8, 0, epoch=3, transactional=True))
    end_transaction(log, 8, MarkerType.ABORT, epoch=3)
    log = end(disk, log)
    with pytest.raises(OutOfOrderSequence, match="sequence 1 is next"):
        append(log, idempotent(7, 2, transactional=True))
    assert append(log, idempotent(8, 2, epoch=3, transactional=True)) == [4]
    with pytest.raises(OutOfOrderSequence, match="sequence 3 is next"):
        append(log, idempotent(8, 4, epoch=3, transactional=True))


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    _, log = open_simulated()
    append(log, idempotent(7, SEQUENCE_MAX - 1, "a", "b", "c"))
    with pytest.raises(OutOfOrderSequence, match="sequence 1 is next"):
        append(log, idempotent(7, 0))
    assert append(log, idempotent(7, 1)) == [3]
    repeated = log.append(idempotent(7, SEQUENCE_MAX - 1, "a", "b", "c"), leader_epoch=0, now_ms=NOW_MS)
    assert (repeated.repeated, repeated.base_offset) == (True, 0)


def test_five_batches_are_remembered_and_an_older_one_is_out_of_order() -> None:
    _, log = open_simulated()
    append(log, *[idempotent(7, sequence) for sequence in range(6)])
    for sequence in range(1, 6):
        assert log.append(idempotent(7, sequence), leader_epoch=0, now_ms=NOW_MS).repeated
    with pytest.raises(OutOfOrderSequence):
        append(log, idempotent(7, 0))


def test_producers_do_not_disturb_each_other() -> None:
    _, log = open_simulated()
    assert append(log, idempotent(1, 0), idempotent(2, 40), idempotent(1, 1), idempotent(2, 41)) == [0, 1, 2, 3]


def test_what_was_truncated_is_not_taken_for_a_repeat() -> None:
    disk, log = open_simulated()
    append(log, idempotent(7, 0), idempotent(7, 1), idempotent(7, 2))
    checkpoint(log)
    log.truncate(1)
    assert log.append(idempotent(7, 0), leader_epoch=0, now_ms=NOW_MS).repeated
    again = log.append(idempotent(7, 1), leader_epoch=0, now_ms=NOW_MS)
    assert not again.repeated
    assert again.base_offset == 1
    sync(log)
    disk.cut_power()
    log = reopen(disk)
    with pytest.raises(OutOfOrderSequence, match="sequence 2 is next"):
        append(log, idempotent(7, 3))


def test_a_snapshot_of_a_truncated_future_does_not_come_back_with_the_power() -> None:
    for seed in range(20):
        disk = SimulatedDisk(seed)
        log = reopen(disk)
        append(log, idempotent(7, 0), idempotent(7, 1))
        checkpoint(log)
        log.truncate(0)
        append(log, idempotent(8, 0), idempotent(8, 1))
        sync(log)
        disk.cut_power()
        assert [each.producer_id for each in reopen(disk).producers.all()] == [8]


def test_what_producers_did_in_removed_segments_is_remembered() -> None:
    disk, log = open_simulated(settings(segment_bytes=1024, retention_bytes=0))
    append(log, idempotent(7, 0, "x" * 900), idempotent(8, 0, "x" * 900), idempotent(9, 0, "x" * 900))
    run_steps_here(log.delete_before(2))
    disk.cut_power()
    log = reopen(disk)
    assert {each.producer_id for each in log.producers.all()} == {7, 8, 9}
    assert log.append(idempotent(7, 0, "x" * 900), leader_epoch=0, now_ms=NOW_MS).repeated


def test_a_silent_producer_is_forgotten_unless_its_transaction_is_open() -> None:
    _, log = open_simulated()
    append(log, idempotent(7, 0), idempotent(8, 0, transactional=True))
    log.producers.expire(NOW_MS + 1)
    assert [each.producer_id for each in log.producers.all()] == [8]


# --- transactions


@ends
def test_an_open_transaction_holds_back_readers_of_committed_records(end: End) -> None:
    disk, log = open_simulated()
    append(log, idempotent(1, 0, "a", transactional=True), idempotent(2, 0, "b"))
    log = end(disk, log)
    assert log.producers.first_open_offset == 0
    assert committed_values(log) == []
    end_transaction(log, 1, MarkerType.COMMIT)
    assert log.producers.first_open_offset is None
    assert committed_values(log) == ["a", "b"]


@ends
def test_records_of_an_aborted_transaction_are_left_out(end: End) -> None:
    disk, log = open_simulated()
    append(
        log,
        idempotent(1, 0, "no", transactional=True),
        idempotent(2, 0, "yes", transactional=True),
        idempotent(1, 1, "no", transactional=True),
    )
    marker = end_transaction(log, 1, MarkerType.ABORT)
    end_transaction(log, 2, MarkerType.COMMIT)
    append(log, idempotent(1, 2, "yes", transactional=True))
    end_transaction(log, 1, MarkerType.COMMIT)
    log = end(disk, log)
    assert committed_values(log) == ["yes", "yes"]
    assert [entry[:3] for entry in log.aborted_between(0, log.end_offset)] == [(1, 0, marker)]


@ends
def test_aborted_transactions_are_found_by_the_offsets_they_touch(end: End) -> None:
    disk, log = open_simulated()
    for producer_id in (1, 2, 3):
        append(log, idempotent(producer_id, 0, transactional=True))
        end_transaction(log, producer_id, MarkerType.ABORT)
    log = end(disk, log)
    found = [[entry.producer_id for entry in log.aborted_between(*span)] for span in ((0, 6), (2, 4), (1, 3), (5, 6))]
    assert found == [[1, 2, 3], [2], [1, 2], [3]]
    assert log.aborted_between(6, 6) == []


def test_the_abort_of_the_very_first_batch_is_known_in_memory_too() -> None:
    log = MemoryLog("orders-0", settings())
    append(log, idempotent(1, 0, "open", transactional=True), idempotent(2, 0, "no", transactional=True))
    end_transaction(log, 2, MarkerType.ABORT)
    (entry,) = log.aborted_between(0, log.end_offset)
    assert entry.stable_offset == 0


def test_a_follower_learns_of_markers_in_the_middle_of_what_it_copies() -> None:
    _, leader = open_simulated()
    append(leader, idempotent(1, 0, "no", transactional=True), idempotent(2, 0, "yes", transactional=True))
    end_transaction(leader, 1, MarkerType.ABORT)
    end_transaction(leader, 2, MarkerType.COMMIT)
    append(leader, idempotent(2, 1, "yes"))
    copied = leader.read(0, bytes_max=1 << 20)
    assert copied is not None
    for follower in (open_simulated()[1], MemoryLog("orders-0", settings())):
        follower.append_as_is(copied.read(), leader_epoch=0, now_ms=NOW_MS)
        assert committed_values(follower) == ["yes", "yes"]
        assert follower.producers.first_open_offset is None


def test_a_marker_without_a_transaction_changes_nothing() -> None:
    _, log = open_simulated()
    for kind in MarkerType:
        end_transaction(log, 5, kind)
    assert log.aborted_between(0, log.end_offset) == []
    assert values(log) == []


def test_a_truncated_marker_opens_its_transaction_again() -> None:
    _, log = open_simulated()
    append(log, idempotent(1, 0, "a", transactional=True))
    marker = end_transaction(log, 1, MarkerType.ABORT)
    checkpoint(log)
    log.truncate(marker)
    assert log.producers.first_open_offset == 0
    assert log.aborted_between(0, 10) == []
    end_transaction(log, 1, MarkerType.COMMIT)
    assert committed_values(log) == ["a"]


@pytest.mark.parametrize("damage", ["flip", "shorten", "remove"])
def test_a_damaged_list_of_aborts_is_built_again(damage: str) -> None:
    disk, log = open_simulated()
    for sequence in range(3):
        append(log, idempotent(1, sequence, "no", transactional=True))
        end_transaction(log, 1, MarkerType.ABORT)
    log.close()
    (path,) = [path for path in disk.paths() if path.suffix == ".aborted"]
    if damage == "flip":
        disk.flip_bit(path, 3)
    elif damage == "shorten":
        disk.open_existing(path).truncate(disk.size(path) - 5)
    else:
        disk.remove(path)
    log = reopen(disk)
    assert committed_values(log) == []
    assert len(log.aborted_between(0, log.end_offset)) == 3


def test_marker_bytes_are_what_the_codec_makes() -> None:
    _, log = open_simulated()
    marker = Marker(MarkerType.COMMIT, 9, 2, 4, NOW_MS)
    log.append_marker(bytes(encode_marker(marker)), leader_epoch=0, now_ms=NOW_MS)
    producer = log.producers.get(9)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch) == (2, 4)


def test_of_the_ids_that_requests_derive_only_the_last_are_remembered() -> None:
    disk, log = open_simulated()
    append_one = partial(log.append, leader_epoch=0, now_ms=NOW_MS)
    append_one(idempotent(7, 0))  # a client's, however old
    for number in range(DERIVED_MAX + 5):
        append_one(idempotent(DERIVED_ID_FIRST + number, 0))
    assert len(log.producers) == DERIVED_MAX + 1
    log = close_and_reopen(disk, log)
    assert len(log.producers) == DERIVED_MAX + 1
    end_offset = log.end_offset
    for producer_id in (7, DERIVED_ID_FIRST + 5):
        assert log.append(idempotent(producer_id, 0), leader_epoch=0, now_ms=NOW_MS).repeated
    assert not log.append(idempotent(DERIVED_ID_FIRST, 0), leader_epoch=0, now_ms=NOW_MS).repeated
    assert log.end_offset == end_offset + 1
    log.producers.expire(NOW_MS + 1)
    assert len(log.producers) == 0


@pytest.mark.parametrize("closed", [True, False])
def test_a_lost_list_of_aborts_is_made_again_from_the_log(closed: bool) -> None:
    config = settings(segment_bytes=1024)
    disk, log = open_simulated(config)
    for number in range(20):
        append(log, idempotent(number, 0, "aborted" * 20, transactional=True), batch("plain" * 20))
        end_transaction(log, number, MarkerType.ABORT)
    checkpoint(log)
    if closed:
        log.close()
    lists = [path for path in disk.paths() if path.suffix == ".aborted"]
    assert len(lists) > 2
    for path in lists[:-1]:
        disk.remove(path)
        assert committed_values(reopen(disk, config)) == ["plain" * 20] * 20
