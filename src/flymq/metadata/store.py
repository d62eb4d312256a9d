"""The interface of the metadata store: a small map from keys to bytes in which every change has a number.

The number is the *revision* of the store. A txn that changes anything takes the next one; a key has the revision at
which it was created and the one at which it was last written. Concurrency control is optimistic, with no locks and no
clocks: a txn first compares revisions and then writes, atomically.

    epoch = key_value.create_revision                  # the creator of the key is the controller
    await store.txn(
        compares=[created_at("ctl", epoch), modified_at("p/7", partition.mod_revision)],
        success=[Put("p/7", new_state)],
    )

The semantics are those of etcd, so that one broker on SQLite and a cluster on etcd behave alike; the limits are those
of the stricter engine, on both. tests/unit/metadata/test_conformance.py tests every implementation.

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
"""For compares, success and failure operations each; etcd's default."""

TXN_BYTES_MAX = 1 << 20
"""For keys and values together: etcd accepts requests of 1.5 MiB, the rest is left for the encoding."""

NO_LEASE = 0


class KeyValue(NamedTuple):
    """A key with its value and revisions."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Event(NamedTuple):
    """A change of a key: its new value and revisions, or None if it was deleted."""

    key: str
    key_value: KeyValue | None


class EventBatch(NamedTuple):
    """All changes of the watched keys at one revision. Never split, never merged."""

    revision: int
    events: tuple[Event, ...]


class Snapshot(NamedTuple):
    """The keys under a prefix, sorted, with their values at one revision."""

    revision: int
    key_values: tuple[KeyValue, ...]


class TxnResult(NamedTuple):
    """Which branch ran, the revision of the store afterwards, and the results of its `Get`s, in order."""

    succeeded: bool
    revision: int
    found: tuple[KeyValue | None, ...]


# --- transactions ---------------------------------------------------------------------------------------------------


class Target(Enum):
    """What of a key is compared. An absent key has revisions of 0 and no value: comparing its value always fails."""

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
    """A condition of a txn: `target` of `key`, `relation`, `expected`."""

    key: str
    target: Target
    relation: Relation
    expected: int | bytes

    def holds(self, key_value: KeyValue | None) -> bool:
        """Return whether the condition is true for this key; None: the key is absent."""
        actual: int | bytes
        if self.target is Target.VALUE:
            if key_value is None:
                return False
            actual = key_value.value
        elif key_value is None:
            actual = 0
        else:
            actual = key_value.create_revision if self.target is Target.CREATE_REVISION else key_value.mod_revision
        return _RELATIONS[self.relation](actual, self.expected)


def is_absent(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, 0)


def exists(key: str) -> Compare:
    return Compare(key, Target.CREATE_REVISION, Relation.GREATER, 0)


def created_at(key: str, revision: int) -> Compare:
    """The key was created at `revision` and not deleted since; it may have been written again."""
    return Compare(key, Target.CREATE_REVISION, Relation.EQUAL, revision)


def modified_at(key: str, revision: int) -> Compare:
    """The key has not been written since `revision`."""
    return Compare(key, Target.MOD_REVISION, Relation.EQUAL, revision)


def has_value(key: str, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, Relation.EQUAL, value)


class Put(NamedTuple):
    """Write a key. With the lease of a session it is deleted when the session ends; without one it stays."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(NamedTuple):
    """Delete a key, if it exists."""

    key: str


class DeletePrefix(NamedTuple):
    """Delete every key that starts with `prefix`; the empty prefix deletes all."""

    prefix: str


class Get(NamedTuple):
    """Read a key, including the effect of earlier operations in the same txn."""

    key: str


Op = Put | Delete | DeletePrefix | Get


def only_reads(success: Sequence[Op], failure: Sequence[Op]) -> bool:
    """Return whether a txn changes nothing, and so may be repeated."""
    return all(isinstance(op, Get) for op in (*success, *failure))


def check_txn(compares: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> None:
    """Raise `InvalidTxn` for anything that one of the engines would reject, so that all of them do."""
    count = max(len(compares), len(success), len(failure))
    if count > TXN_OPS_MAX:
        raise InvalidTxn(f"a txn has at most {TXN_OPS_MAX} compares or operations, this one has {count}")
    size = sum(map(_size, (*compares, *success, *failure)))
    if size > TXN_BYTES_MAX:
        raise InvalidTxn(f"a txn has at most {TXN_BYTES_MAX} bytes of keys and values, this one has {size}")
    for compare in compares:
        _check_key(compare.key)
        if isinstance(compare.expected, bytes) is not (compare.target is Target.VALUE):
            raise InvalidTxn(f"the {compare.target.value} of {compare.key!r} is compared to {compare.expected!r}")
    _check_branch(success)
    _check_branch(failure)


def _check_branch(ops: Sequence[Op]) -> None:
    """A branch writes a key at most once and deletes no key that it writes: at one revision a key has one state."""
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
    """Return the half-open range of UTF-8 keys that start with `prefix`. No UTF-8 contains 0xFF."""
    start = prefix.encode()
    if not start:
        return b"", b"\xff"
    return start, start[:-1] + bytes((start[-1] + 1,))


# --- the store ------------------------------------------------------------------------------------------------------


class Session(Protocol):
    """The session of one process. Keys put with its lease are deleted when it ends, all at one revision."""

    @property
    def lease(self) -> int:
        """The lease for `Put`; if the session has ended, the whole txn raises `SessionEnded`."""

    @property
    def has_ended(self) -> bool:
        """Whether the session is known to have ended."""

    @property
    def is_valid(self) -> bool:
        """Whether the store certainly has not expired the session yet. False is doubt, and not the end.

        Decided on this machine's clock alone, so also while the store cannot be reached. Only a bound on how stale a
        decision may be; what must be safe is compared in a txn.
        """

    async def wait_ended(self) -> None:
        """Return once the session is known to have ended, by `close` or because the store expired it."""

    async def close(self) -> None:
        """End the session now. Idempotent."""


class MetadataStore(Protocol):
    """A metadata store. Every method may raise `MetadataUnavailable`: then nothing was changed."""

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        """Run `success` if every compare holds, else `failure`: atomically, at one new revision.

        A txn that changes nothing takes no revision. Raises `IndeterminateResult` if the response was lost; never if
        there is nothing but `Get`s.
        """

    async def range(self, prefix: str) -> Snapshot:
        """Return the keys under `prefix` at the latest revision, including the caller's own writes."""

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        """Yield every batch that touches `prefix` from `from_revision` on, in order and without gaps.

        Raises `RevisionCompacted` if some of them have been compacted. Ends when the store is closed.
        """

    async def session(self, ttl_s: int) -> Session:
        """Open a session, which is kept alive until it is closed. It expires about `ttl_s` seconds after its owner has
        died, or has lost the connection to the store; an engine may have a minimum of a few seconds."""

    async def close(self) -> None:
        """End all sessions and watches, and close the store. Idempotent."""
