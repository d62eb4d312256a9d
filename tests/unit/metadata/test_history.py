from __future__ import annotations

import pytest

from flymq.metadata.history import History, only_under
from flymq.metadata.store import Event, EventBatch, KeyValue
from flymq.model.errors import RevisionCompacted


def batch(revision: int, value_bytes: int = 0) -> EventBatch:
    return EventBatch(revision, (Event("k", KeyValue("k", bytes(value_bytes), 1, revision)),))


def revisions(history: History, since: int) -> list[int]:
    return [batch.revision for batch in history.since(since)]


def test_a_history_gives_the_batches_from_a_revision_on() -> None:
    history = History(5, bytes_max=10_000)
    assert revisions(history, 5) == []
    for revision in (5, 6, 7):
        history.append(batch(revision))
    assert revisions(history, 5) == [5, 6, 7]
    assert revisions(history, 7) == [7]
    assert revisions(history, 8) == revisions(history, 100) == []


def test_revisions_before_the_first_are_forgotten() -> None:
    with pytest.raises(RevisionCompacted, match="revision 4 has been compacted; the oldest one available is 5"):
        revisions(History(5, bytes_max=10_000), 4)


def test_the_oldest_batches_go_when_there_are_more_bytes_than_allowed() -> None:
    history = History(1, bytes_max=10_000)
    for revision in range(1, 101):
        history.append(batch(revision, value_bytes=1_000))
    assert history.end_revision == 101
    assert 5 <= history.end_revision - history.start_revision <= 10
    assert revisions(history, history.start_revision) == list(range(history.start_revision, 101))
    with pytest.raises(RevisionCompacted):
        revisions(history, history.start_revision - 1)


def test_batches_appended_while_reading_are_read_too() -> None:
    history = History(1, bytes_max=10_000)
    history.append(batch(1))
    reading = history.since(1)
    assert next(reading).revision == 1
    history.append(batch(2))
    assert next(reading).revision == 2


def test_a_batch_is_cut_down_to_the_keys_under_a_prefix() -> None:
    both = EventBatch(3, (Event("t/a", None), Event("u/a", None)))
    assert only_under("t/", both) == EventBatch(3, (Event("t/a", None),))
    assert only_under("", both) == both
    assert only_under("x", both) is None
