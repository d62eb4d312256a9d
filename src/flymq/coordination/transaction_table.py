"""All transactional ids and queries of one partition of `__transactions`: what its log, replayed, gives again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeVar

from flymq.coordination.attempts import Attempt, parse_attempt
from flymq.coordination.entries import Entry, Key, QueryKey, QueryValue, TransactionKey, TransactionValue, Value
from flymq.coordination.transactions import TransactionLimits

V = TypeVar("V")


class TransactionTable:
    """Transactional ids, and how far each query has come."""

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
        """Yield the attempts of a query that are still known."""
        for transactional_id in sorted(self._attempts.get(query, ())):
            yield transactional_id, self._transactions[transactional_id]

    def apply(self, entries: Iterable[Entry]) -> None:
        """Bring the state up to date with entries that are in the log."""
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
        """Return the table as the log would have it after compaction."""
        found: dict[Key, Value] = {TransactionKey(name): value for name, value in self._transactions.items()}
        return found | {QueryKey(query): value for query, value in self._queries.items()}

    def decide_expire(self, now_ms: int, limits: TransactionLimits) -> list[Entry]:
        """Forget what nobody has used for long."""
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
