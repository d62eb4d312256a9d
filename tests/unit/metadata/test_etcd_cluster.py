"""The store on three members of a current etcd, which are killed and stopped one after another."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.etcd_process import EtcdMember, current, running_etcd, until_healthy

from flymq.host.host import system_host
from flymq.metadata.etcd.config import EtcdConfig, parse_endpoints
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.metadata.store import Get, Put, modified_at
from flymq.model.errors import IndeterminateResult, MetadataUnavailable

pytestmark = pytest.mark.slow


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[EtcdMember]]:
    if (program := current()) is None:
        pytest.skip("there is no current etcd: `make etcd` builds one, which needs Go")
    with running_etcd(program, tmp_path, members=3) as members:
        yield members


@pytest.fixture
async def store(members: list[EtcdMember]) -> AsyncIterator[EtcdMetadataStore]:
    urls = ",".join(member.client_url for member in members)
    store = await EtcdMetadataStore.open(system_host(), EtcdConfig(parse_endpoints(urls), "/flymq/c/"))
    yield store
    await store.close()


class Counter:
    """Counts in a key by compare-and-swap, whatever happens to the members."""

    def __init__(self, store: EtcdMetadataStore) -> None:
        self._store = store
        self.acknowledged = 0
        self._revision = 0

    async def count_to(self, end: int) -> None:
        while self.acknowledged < end:
            number = self.acknowledged + 1
            try:
                done = await self._store.txn([modified_at("n", self._revision)], [Put("n", b"%d" % number)])
                assert done.succeeded, "nobody else writes"
                self.acknowledged, self._revision = number, done.revision
            except MetadataUnavailable:
                continue
            except IndeterminateResult:
                await self._read_again(number)

    async def _read_again(self, tried: int) -> None:
        """Find out what became of a write."""
        while True:
            try:
                (found,) = (await self._store.txn(success=[Get("n")])).found
            except (IndeterminateResult, MetadataUnavailable):
                continue
            value = int(found.value) if found is not None else 0
            assert value in (self.acknowledged, tried)
            self.acknowledged, self._revision = value, found.mod_revision if found is not None else 0
            return


async def follow(store: EtcdMetadataStore, seen: list[int], end: int, from_revision: int) -> None:
    async for batch in store.watch("n", from_revision=from_revision):
        seen += [int(event.key_value.value) for event in batch.events if event.key_value is not None]
        if seen[-1] == end:
            return


async def test_members_that_are_killed_cost_no_acknowledged_change_no_event_and_no_session(
    members: list[EtcdMember], store: EtcdMetadataStore
) -> None:
    session = await store.session(10)
    start = (await store.txn(success=[Put("b", b"", session.lease)])).revision
    seen: list[int] = []
    following = asyncio.ensure_future(follow(store, seen, 160, start + 1))
    counter = Counter(store)
    await counter.count_to(10)
    for number, member in enumerate(members, 1):  # one of them is the leader
        member.kill()
        await counter.count_to(number * 50)
        member.start()
        await asyncio.to_thread(until_healthy, members)
    await counter.count_to(160)
    await following
    assert seen == list(range(1, 161))
    assert not session.has_ended
    assert [found.key for found in (await store.range("")).key_values] == ["b", "n"]


async def test_members_that_are_stopped_cost_no_acknowledged_change_no_event_and_no_session(
    members: list[EtcdMember], store: EtcdMetadataStore
) -> None:
    session = await store.session(10)
    start = (await store.txn(success=[Put("b", b"", session.lease)])).revision
    seen: list[int] = []
    following = asyncio.ensure_future(follow(store, seen, 90, start + 1))
    counter = Counter(store)
    await counter.count_to(10)
    for number, member in enumerate(members, 1):
        assert member.process is not None
        member.process.send_signal(signal.SIGSTOP)
        await counter.count_to(10 + number * 20)
        member.process.send_signal(signal.SIGCONT)
        await asyncio.to_thread(until_healthy, members)
    await counter.count_to(90)
    await following
    assert seen == list(range(1, 91))
    assert not session.has_ended
