"""An idempotent producer's batches are stored once, in order, whatever happens between."""

import pytest
from tests.unit.storage.logs import DIRECTORY, NOW_MS, append, small_log, values

from flymq.host.simulated_disk import SimulatedDisk
from flymq.model.errors import InvalidBatch, OutOfOrderSequence, ProducerFenced
from flymq.record.batch import encode_batch

LAST_SEQUENCE = 2**31 - 1


def send(log, value, sequence, epoch=0):
    return append(log, value, producer_id=5, producer_epoch=epoch, base_sequence=sequence)


def test_a_repeat_gets_the_offset_of_the_first_time():
    log = small_log(SimulatedDisk())
    assert [send(log, b"a", 0), send(log, b"b", 1), send(log, b"a", 0), send(log, b"b", 1)] == [0, 1, 0, 1]
    assert values(log) == [b"a", b"b"]


def test_a_gap_is_refused():
    log = small_log(SimulatedDisk())
    send(log, b"a", 0)
    with pytest.raises(OutOfOrderSequence, match="sequence 1 is next"):
        send(log, b"c", 2)


def test_an_older_epoch_is_fenced_and_a_newer_one_starts_at_zero():
    log = small_log(SimulatedDisk())
    send(log, b"a", 0, epoch=1)
    with pytest.raises(ProducerFenced):
        send(log, b"old", 1, epoch=0)
    with pytest.raises(OutOfOrderSequence):
        send(log, b"b", 1, epoch=2)
    assert send(log, b"b", 0, epoch=2) == 1


def test_sequences_go_round():
    log = small_log(SimulatedDisk())
    send(log, b"last", LAST_SEQUENCE)
    assert send(log, b"first", 0) == 1
    assert send(log, b"last", LAST_SEQUENCE) == 0


@pytest.mark.parametrize("ending", ["clean", "crash"])
def test_repeats_are_known_after_a_restart(ending):
    disk = SimulatedDisk()
    log = small_log(disk)
    for number in range(8):
        send(log, b"%d" % number, number)
    if ending == "clean":
        log.close()
    else:
        point = log.begin_sync()
        point.run()
        disk.cut_power()
    again = small_log(disk)
    assert send(again, b"7", 7) == 7
    assert send(again, b"8", 8) == 8


def test_a_damaged_snapshot_costs_a_replay_and_nothing_else():
    disk = SimulatedDisk()
    log = small_log(disk)
    send(log, b"a", 0)
    log.close()
    snapshot = next(path for path in disk.paths() if path.suffix == ".producers" and path.parent == DIRECTORY)
    disk.flip_bit(snapshot, 10)
    assert send(small_log(disk), b"a", 0) == 0


def test_truncating_forgets_what_was_cut():
    log = small_log(SimulatedDisk())
    for number in range(4):
        send(log, b"%d" % number, number)
    log.truncate(2)
    assert send(log, b"again", 2) == 2


def test_a_producer_with_an_id_sends_one_batch_at_a_time():
    log = small_log(SimulatedDisk())
    batch = encode_batch([(None, b"a")], timestamp_ms=NOW_MS, producer_id=1, producer_epoch=0, base_sequence=0)
    with pytest.raises(InvalidBatch, match="one batch at a time"):
        log.append(bytes(batch) * 2, leader_epoch=0, now_ms=NOW_MS)
