"""A reader's place: what is handed out, what is in hand, what may be committed."""

from flymq.client.cursor import Cursor, FetchedRun, PolledRecords
from flymq.client.progress import Progress
from flymq.client.records import ConsumerRecord


def records(*offsets: int) -> list[ConsumerRecord]:
    return [ConsumerRecord("t", 0, offset, 0, None, b"v") for offset in offsets]


def test_a_record_counts_as_done_when_the_next_is_asked_for():
    cursor = Cursor("t", 0, 5)
    polled = iter(PolledRecords(cursor, records(5, 6), next_offset=8))
    next(polled)
    assert (cursor.position, cursor.committable) == (6, 5)
    next(polled)
    assert (cursor.position, cursor.committable) == (7, 6)
    assert list(polled) == []
    assert (cursor.position, cursor.committable) == (8, 8), "offsets without a record are passed too"


def test_a_loop_that_was_left_goes_on_where_it_was():
    polled = PolledRecords(Cursor("t", 0, 0), records(0, 1, 2, 3), next_offset=4)
    seen = []
    for record in polled:
        seen.append(record.offset)
        if record.offset == 1:
            break
    seen += [record.offset for record in polled]
    assert seen == [0, 1, 2, 3]


def test_a_jump_ends_what_was_handed_out():
    cursor = Cursor("t", 0, 0)
    polled = PolledRecords(cursor, records(0, 1, 2), next_offset=3)
    seen = []
    for record in polled:
        seen.append(record.offset)
        cursor.seek(100)
    assert seen == [0]
    assert len(polled) == 0
    assert cursor.position == 100


def test_a_list_is_in_hand_until_it_is_released():
    cursor = Cursor("t", 0, 0)
    polled = PolledRecords(cursor, records(0, 1, 2), next_offset=5)
    assert [record.offset for record in polled.take(2)] == [0, 1]
    assert (cursor.position, cursor.committable) == (2, 0)
    polled.release()
    assert cursor.committable == 2
    polled.take(10)
    polled.release()
    assert cursor.committable == 5


def test_a_jump_drops_what_was_read_ahead():
    cursor = Cursor("t", 0, 0)
    cursor.add_run(FetchedRun(memoryview(b"batch"), 0, 10, ()))
    assert (cursor.fetch_offset, cursor.buffered_bytes) == (10, 5)
    cursor.seek(3)
    assert (cursor.fetch_offset, cursor.buffered_bytes, len(cursor.runs)) == (3, 0, 0)


def test_work_that_finishes_out_of_order_is_committed_up_to_the_first_gap():
    cursor = Cursor("t", 0, 10)
    progress = Progress(cursor)
    for offset in (10, 11, 12):
        progress.start(offset)
    cursor.position = 13
    progress.finish(11)
    assert cursor.committable == 10
    progress.finish(10)
    assert cursor.committable == 12
    progress.finish(12)
    assert cursor.committable == 13


def test_work_begun_before_a_jump_counts_no_more():
    cursor = Cursor("t", 0, 10)
    progress = Progress(cursor)
    progress.start(10)
    cursor.seek(50)
    progress.finish(10)
    assert not progress.is_current
    assert cursor.committable == 50
