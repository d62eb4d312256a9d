"""All transactional ids and queries of one partition of `__transactions`, rebuilt by replaying its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeVar

from flymq.coordination.attempts import Attempt, parse_attempt
from flymq.coordination.entries import Entry, Key, QueryKey, QueryValue, TransactionKey, TransactionValue, Value
from flymq.coordination.transactions import TransactionLimits, check_successor

V = TypeVar("V")


class TransactionTable:
    """Transactional ids, and the last committed batch of each query."""

    kinds: ClassVar[tuple[type[Key], ...]] = (TransactionKey, QueryKey)

    def __init__(self) -> None:
        self._transactions: dict[str, TransactionValue] = {}
        self._queries: dict[str, QueryValue] = {}
        self._attempts: dict[str, set[str]] = {}  # query → ids of its attempts

    def __iter__(self) -> Iterator[tuple[str, TransactionValue]]:
        return iter(list(self._transactions.items()))

    def find(self, transactional_id: str) -> TransactionValue | None:
        return self._transactions.get(transactional_id)

    def last_batch(self, query: str) -> int | None:
        value = self._queries.get(query)
        return None if value is None else value.last_batch

    def is_committed(self, attempt: Attempt) -> bool:
        """Whether this batch of the query, or a later one, was committed."""
        last_batch = self.last_batch(attempt.query)
        return last_batch is not None and attempt.batch <= last_batch

    def attempts(self, query: str) -> Iterator[tuple[str, TransactionValue]]:
        """Yield the attempts of a query."""
        for transactional_id in sorted(self._attempts.get(query, ())):
            yield transactional_id, self._transactions[transactional_id]

    def check(self, entries: Iterable[Entry]) -> None:
        """Assert what every decision must keep true. Called before the entries are written.

        It is not part of `apply`: a log may contain anything, and its replay must not stop the broker.
        """
        for key, value in entries:
            if isinstance(value, QueryValue):
                assert isinstance(key, QueryKey)
                last_batch = self.last_batch(key.query)
                assert last_batch is None or value.last_batch > last_batch, (
                    f"{key.query}: the last batch goes back from {last_batch} to {value.last_batch}"
                )
            elif isinstance(value, TransactionValue):
                assert isinstance(key, TransactionKey)
                known = self._transactions.get(key.transactional_id)
                if known is not None:
                    check_successor(key.transactional_id, known, value)

    def apply(self, entries: Iterable[Entry]) -> None:
        """Apply entries of the log."""
        for key, value in entries:
            if isinstance(key, QueryKey):
                assert value is None or isinstance(value, QueryValue)
                _put(self._queries, key.query, value)
            else:
                assert isinstance(key, TransactionKey)
                assert value is None or isinstance(value, TransactionValue)
                _put(self._transactions, key.transactional_id, value)
                self._note_attempt(key.transactional_id, is_known=value is not None)

    def _note_attempt(self, transactional_id: str, *, is_known: bool) -> None:
        attempt = parse_attempt(transactional_id)
        if attempt is None:
            return
        attempts = self._attempts.setdefault(attempt.query, set())
        if is_known:
            attempts.add(transactional_id)
        else:
            attempts.discard(transactional_id)
            if not attempts:
                del self._attempts[attempt.query]

    def entries(self) -> dict[Key, Value]:
        """Return the entries that compaction would keep."""
        found: dict[Key, Value] = {TransactionKey(name): value for name, value in self._transactions.items()}
        return found | {QueryKey(query): value for query, value in self._queries.items()}

    def decide_expire(self, now_ms: int, limits: TransactionLimits) -> list[Entry]:
        """Delete transactional ids and queries that were not used for long."""
        entries: list[Entry] = [
            (TransactionKey(name), None)
            for name, value in self._transactions.items()
            if value.state.is_idle and now_ms - value.changed_at_ms > limits.idle_ms_max
        ]
        entries += [
            (QueryKey(query), None)
            for query, value in self._queries.items()
            if now_ms - value.changed_at_ms > limits.query_idle_ms_max
        ]
        return entries


def _put(table: dict[str, V], name: str, value: V | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
