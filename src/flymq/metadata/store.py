"""The interface to what the brokers agree on: a small map from keys to bytes in which every change has a number.

The number is the store's *revision*. A txn that changes anything takes the next one; a key remembers the revision it
was created at and the one it was last written at. That is all the safety there is: no locks and no clocks, but a txn
that first compares revisions and then writes, all or nothing.

    epoch = entry.create_revision                      # whoever created the key holds the office
    await store.txn(
        compares=[created_at("ctl", epoch), modified_at("p/7", partition.mod_revision)],
        success=[Put("p/7", new_state)],
    )

The meaning is etcd's, so that one broker on SQLite and a cluster on etcd behave alike: limits too are those of the
narrower engine, on both. tests/unit/metadata/test_conformance.py is the interface in executable form.

A reader starts with `range`, which is the state at one revision R, and follows with `watch` from R + 1. When `watch`
raises `RevisionCompacted`, it starts again.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from flymq.model.errors import InvalidTxn

TXN_OPS_MAX = 128
"""Of compares, success or failure operations each; etcd's default."""

TXN_BYTES_MAX = 1 << 20
"""Of keys and values together: etcd takes requests of 1.5 MiB, the rest is room for how they are encoded."""

NO_LEASE = 0


class Entry(NamedTuple):
    """A key and what is known of it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Event(NamedTuple):
    """What became of a key: its new entry, or None when it was deleted."""

    key: str
    entry: Entry | None


class EventBatch(NamedTuple):
    """All that happened at one revision to the keys somebody watches. Never split, never merged."""

    revision: int
    events: tuple[Event, ...]


class Snapshot(NamedTuple):
    """The entries under a prefix, in the order of their keys, as they were at one revision."""

    revision: int
    entries: tuple[Entry, ...]


class TxnResult(NamedTuple):
    """Which branch ran, the revision of the store after it, and what its `Get`s found, in their order."""

    succeeded: bool
    revision: int
    found: tuple[Entry | None, ...]


# --- what a txn is made of ------------------------------------------------------------------------------------------


class Target(Enum):
    """What of an entry is compared. An absent key has revisions of 0, and no value: compares of that all fail."""

    VALUE = "value"
    CREATE_REVISION = "create revision"
    MOD_REVISION = "mod revision"


class Relation(Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    GREATER = ">"


_RELATIONS: dict[Relation, Callable[[Any, Any], bool]] = {
    Relation.EQUAL: operator.eq,
    Relation.NOT_EQUAL: operator.ne,
    Relation.LESS: operator.lt,
    Relation.GREATER: operator.gt,
}


class Compare(NamedTuple):
    """A condition of a txn: `target` of `key` stands in `relation` to `expected`."""

    key: str
    target: Target
    relation: Relation
    expected: int | bytes

    def holds(self, entry: Entry | None) -> bool:
        """Tell whether the condition is true of the key's entry, None when there is none."""
        actual: int | bytes
        if self.target is Target.VALUE:
            if entry is None:
                return False
            actual = entry.value
        elif entry is None:
            actual = 0
        else:
            actual = entry.create_revision if self.target is Target.CREATE_REVISION else entry.mod_revision
        return _RELATIONS[self.relation](actual, self.expected)


def is_absent(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)


def exists(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.GREATER, 0)


def created_at(key: str, revision: int) -> Compare:
    """The key is still the one created at `revision`, however often it was written since."""
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)


def modified_at(key: str, revision: int) -> Compare:
    """The key has not been written since `revision`."""
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, revision)


def has_value(key: str, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, Relation.EQUAL, value)


class Put(NamedTuple):
    """Write a key. With a session's lease the key goes when the session ends; without, it stays."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(NamedTuple):
    """Remove a key, if it is there."""

    key: str


class DeletePrefix(NamedTuple):
    """Remove every key that starts with `prefix`; the empty prefix removes all."""

    prefix: str


class Get(NamedTuple):
    """Read a key, with what earlier operations of the same txn did to it."""

    key: str


Op = Put | Delete | DeletePrefix | Get


def check_txn(compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> None:
    """Raise `InvalidTxn` for what one of the engines would refuse, so that all of them do."""
    count = max(len(compares), len(success), len(failure))
    if count > TXN_OPS_MAX:
        raise InvalidTxn(f"a txn has at most {TXN_OPS_MAX} compares or operations, this one {count}")
    size = sum(map(_size, (*compares, *success, *failure)))
    if size > TXN_BYTES_MAX:
        raise InvalidTxn(f"a txn has at most {TXN_BYTES_MAX} bytes of keys and values, this one {size}")
    for compare in compares:
        _check_key(compare.key)
        if isinstance(compare.expected, bytes) is not (compare.target is Target.VALUE):
            raise InvalidTxn(f"the {compare.target.value} of {compare.key!r} is compared to {compare.expected!r}")
    _check_branch(success)
    _check_branch(failure)


def _check_branch(ops: Sequence[Op]) -> None:
    """A branch writes a key once and deletes none that it writes: at one revision a key has one state."""
    written: set[str] = set()
    for op in ops:
        if not isinstance(op, DeletePrefix):
            _check_key(op.key)
        if isinstance(op, Put):
            if op.key in written:
                raise InvalidTxn(f"the key {op.key!r} is put twice in one txn")
            written.add(op.key)
    for op in ops:
        if isinstance(op, Delete) and op.key in written:
            raise InvalidTxn(f"the key {op.key!r} is put and deleted in one txn")
        if isinstance(op, DeletePrefix) and (clash := _first_under(op.prefix, written)):
            raise InvalidTxn(f"the key {clash!r} is put and deleted in one txn")


def _first_under(prefix: str, keys: Iterable[str]) -> str | None:
    return next((key for key in keys if key.startswith(prefix)), None)


def _check_key(key: str) -> None:
    if not key:
        raise InvalidTxn("a key must not be empty")


def _size(part: Compare | Op) -> int:
    return sum(len(field) for field in part if isinstance(field, str | bytes))


def key_bounds(prefix: str) -> tuple[bytes, bytes]:
    """Return the half-open range of UTF-8 keys that start with `prefix`. No UTF-8 holds 0xFF: it ends them all."""
    start = prefix.encode()
    if not start:
        return b"", b"\xff"
    return start, start[:-1] + bytes((start[-1] + 1,))


# --- the store ------------------------------------------------------------------------------------------------------


class Session(Protocol):
    """The life of one participant. Keys put with its lease vanish when it ends, all at one revision."""

    @property
    def lease(self) -> int:
        """What to give `Put`; one that has ended makes the whole txn raise `SessionEnded`."""

    @property
    def has_ended(self) -> bool: ...

    async def wait_ended(self) -> None:
        """Return once the session has ended, by `close` or because the store gave it up."""

    async def close(self) -> None:
        """End the session now. Doing it twice is allowed."""


class MetadataStore(Protocol):
    """The front door. Every method may raise `MetadataUnavailable`, which means that nothing was changed."""

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        """Run `success` when every compare holds, else `failure`: all of it or nothing, at one new revision.

        A txn that changes nothing takes no revision. Raises `IndeterminateResult` when the answer was lost.
        """

    async def range(self, prefix: str) -> Snapshot:
        """Return what is under `prefix` at the latest revision, the caller's own writes included."""

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield every batch that touches `prefix` from `from_revision` on, in order and without gaps.

        Raises `RevisionCompacted` when some of them are forgotten. Ends when the store is closed.
        """

    async def session(self, ttl_s: int) -> Session:
        """Open a session that ends at the latest `ttl_s` seconds, and a little, after its owner is gone."""

    async def close(self) -> None:
        """End every session and watch of this store and let go of it. Doing it twice is allowed."""
