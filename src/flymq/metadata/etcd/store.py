"""The metadata store of a cluster: a prefix of etcd.

The interface has etcd's semantics, so there is little to do here: txns, ranges in pages at one revision, leases. Which
member is asked, and what may be repeated, is decided in members.py; how a watch stays complete, in watch.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

from flymq.host.clock import Clock
from flymq.host.entropy import Entropy
from flymq.host.host import Host
from flymq.host.tasks import Tasks
from flymq.metadata.attempts import Lost
from flymq.metadata.etcd.config import EtcdConfig
from flymq.metadata.etcd.members import Members
from flymq.metadata.etcd.messages import (
    GRANT,
    KEEPALIVE,
    RANGE,
    REVOKE,
    TXN,
    LeaseResponse,
    encode_grant,
    encode_lease,
    encode_probe,
    encode_range,
    encode_txn,
    key_value,
    parse_keepalive,
    parse_lease,
    parse_range,
    parse_txn,
    txn_result,
)
from flymq.metadata.etcd.outcomes import outcome_of_failure
from flymq.metadata.etcd.watch import Watch
from flymq.metadata.kept_session import KeptSession
from flymq.metadata.store import (
    Compare,
    EventBatch,
    KeyValue,
    Op,
    Snapshot,
    TxnResult,
    check_txn,
    key_bounds,
    only_reads,
)
from flymq.model.errors import MetadataRefused, MetadataUnavailable, RevisionCompacted, SessionEnded

logger = logging.getLogger(__name__)

_PAGE_KEYS = 1000
_LEASE_BITS = 62
_CLOSE_S_MAX = 2.0
_KEEPALIVE_S_MAX = 1.0
"""For one member: a lease must outlive one that hangs."""


class EtcdMetadataStore:
    """A `MetadataStore` in the keys of an etcd cluster that start with one prefix."""

    def __init__(self, members: Members, clock: Clock, entropy: Entropy, prefix: str) -> None:
        self._members = members
        self._clock = clock
        self._entropy = entropy
        self._prefix = prefix
        self._sessions: set[KeptSession] = set()
        self._tasks = Tasks(self._task_failed)
        self._is_closed = False

    @classmethod
    async def open(cls, host: Host, config: EtcdConfig) -> EtcdMetadataStore:
        """Connect to etcd. Raises an error if no member can be reached, or one is unsupported."""
        members = Members(host.network, host.clock, host.entropy, config)
        store = cls(members, host.clock, host.entropy, config.prefix)
        try:
            await members.check()
            await store._ask_revision()
        except BaseException:
            members.close()
            raise
        return store

    async def txn(
        self, compares: Sequence[Compare] = (), success: Sequence[Op] = (), failure: Sequence[Op] = ()
    ) -> TxnResult:
        check_txn(compares, success, failure)
        body = encode_txn(self._prefix, compares, success, failure)
        call = self._members.read if only_reads(success, failure) else self._members.write
        response = await call(TXN, body, parse_txn)
        return txn_result(self._prefix, response)

    async def range(self, prefix: str) -> Snapshot:
        while True:
            try:
                return await self._read_pages(prefix)
            except RevisionCompacted:  # between two pages
                continue

    async def _read_pages(self, prefix: str) -> Snapshot:
        start, end = key_bounds(self._prefix + prefix)
        revision = 0
        found: list[KeyValue] = []
        while True:
            body = encode_range(start, end, limit=_PAGE_KEYS, revision=revision)
            page = await self._members.read(RANGE, body, parse_range)
            revision = revision or page.header.revision
            found += (key_value(self._prefix, wire) for wire in page.kvs)
            if not page.more:
                return Snapshot(revision, tuple(found))
            start = page.kvs[-1].key + b"\0"

    def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        watch = Watch(
            self._members,
            self._prefix,
            prefix,
            from_revision,
            latest_revision=self._latest_revision,
            is_closed=lambda: self._is_closed,
        )
        return watch.batches()

    async def session(self, ttl_s: int) -> KeptSession:
        opened_s = self._clock.boottime_s()
        lease = self._entropy.getrandbits(_LEASE_BITS) + 1
        try:
            # A repeated grant of one's own lease has no effect, so this may be repeated like a read.
            granted = await self._members.read(GRANT, encode_grant(lease, ttl_s), parse_lease)
            granted_ttl_s = float(granted.TTL)
        except MetadataRefused as error:
            if "already exists" not in str(error):
                raise
            granted_ttl_s = await self._renew(lease)  # an earlier attempt had succeeded
        session = KeptSession(self._clock, lease, granted_ttl_s, opened_s, renew=self._renew, revoke=self._revoke)
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")
        self._sessions.add(session)
        self._tasks.spawn(f"metadata session {lease:x}", self._keep(session))
        return session

    async def close(self) -> None:
        """End all sessions and watches, and close all connections."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(_CLOSE_S_MAX):
                await asyncio.gather(*(session.close() for session in list(self._sessions)))
        except TimeoutError:
            logger.warning("metadata: the sessions have to expire: etcd does not respond")
        self._members.close()
        await self._tasks.close()

    # --- leases

    async def _keep(self, session: KeptSession) -> None:
        try:
            await session.run()
        finally:
            self._sessions.discard(session)

    async def _renew(self, lease: int) -> float:
        renewed = await self._members.read(KEEPALIVE, encode_lease(lease), _parse_keepalive, within_s=_KEEPALIVE_S_MAX)
        if renewed.TTL == 0:
            raise SessionEnded("the lease has expired")
        return float(renewed.TTL)

    async def _revoke(self, lease: int) -> None:
        await self._members.read(REVOKE, encode_lease(lease), parse_lease)

    # --- revisions

    async def _ask_revision(self) -> int:
        return (await self._members.read(RANGE, encode_probe(self._prefix), parse_range)).header.revision

    async def _latest_revision(self) -> int | None:
        try:
            return await self._ask_revision()
        except MetadataUnavailable:
            return None

    def _task_failed(self, name: str, error: BaseException) -> None:
        logger.error("the task %r failed", name, exc_info=error)


def _parse_keepalive(raw: bytes) -> LeaseResponse:
    """Parse a stream of one line. Errors are lines as well."""
    line = parse_keepalive(raw)
    if line.error is not None:
        raise outcome_of_failure(line.error)
    if line.result is None:
        raise Lost("not a response to a keepalive")
    return line.result
