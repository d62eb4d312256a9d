"""A served store among machines that are killed, paused, cut off and slow, in virtual time; and broken peers."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from flymq.host.disk import SystemDisk
from flymq.host.host import system_host
from flymq.host.simulated_host import SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import run
from flymq.metadata.served import server as served_server
from flymq.metadata.served.client import ServedMetadataStore
from flymq.metadata.served.messages import OpenSession, RangeRequest, RenewSession, WatchRequest, encode
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore
from flymq.metadata.store import EventBatch, Get, Put, is_absent
from flymq.model.errors import IndeterminateResult, MetadataUnavailable, RevisionCompacted, SessionEnded

DATA = Path("/data")
PORT = 1
TTL_S = 6


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


class World:
    """A machine that serves a store, and two that use it."""

    def __init__(self, seed: int = 1) -> None:
        chance = random.Random(seed)
        self.network = SimulatedNetwork(chance)
        self.server, self.first, self.second = (
            SimulatedMachine(name, self.network, chance) for name in ("server", "first", "second")
        )
        self.server.disk.make_directory(DATA)
        self.store: SqliteMetadataStore

    async def serve(self) -> None:
        await self.server.run(self._serve())

    async def _serve(self) -> None:
        host = self.server.host
        self.store = SqliteMetadataStore.open(self.server.disk, DATA / "metadata.db")
        served = MetadataServer(self.store, host.clock)
        await host.network.listen("server", PORT, 10, served.accept)

    def client(self, machine: SimulatedMachine) -> ServedMetadataStore:
        """To be called on that machine."""
        host = machine.host
        return ServedMetadataStore(
            lambda new: host.network.connect(new, "server", PORT, None), host.clock, host.entropy
        )

    async def keys(self) -> list[str]:
        return [found.key for found in (await self.store.range("")).key_values]

    async def until_gone(self, key: str) -> float:
        """Return how long it took until the key was deleted."""
        started_s = self.server.host.clock.monotonic_s()
        while key in await self.keys():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self.server.host.clock.monotonic_s() - started_s


def in_a_world(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Run a test in virtual time."""

    async def body() -> None:
        world = World()
        await world.serve()
        await test(world)

    def call() -> None:
        run(body())

    call.__name__ = test.__name__
    return call


async def register(world: World, machine: SimulatedMachine, key: str) -> None:
    """Open a session on a machine, and put a key with it."""

    async def work() -> None:
        store = world.client(machine)
        session = await store.session(TTL_S)
        await store.txn([is_absent(key)], [Put(key, b"", session.lease)])

    await machine.run(work())


# --- sessions ---


@in_a_world
async def test_the_session_of_a_dead_owner_ends_after_its_ttl_and_not_before(world: World) -> None:
    await register(world, world.first, "b/1")
    await register(world, world.second, "b/2")
    await asyncio.sleep(10 * TTL_S)
    assert await world.keys() == ["b/1", "b/2"]
    world.first.kill()
    gone_after_s = await world.until_gone("b/1")
    assert TTL_S * 2 / 3 - 0.5 < gone_after_s < TTL_S + 0.5
    await asyncio.sleep(10 * TTL_S)
    assert await world.keys() == ["b/2"]


@in_a_world
async def test_a_lost_connection_ends_no_session(world: World) -> None:
    await register(world, world.first, "b/1")
    for _ in range(20):
        world.network.reset("first")
        await asyncio.sleep(1.7)
    assert await world.keys() == ["b/1"]


@in_a_world
async def test_the_owner_doubts_its_session_before_the_store_expires_it(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        session = await store.session(TTL_S)
        await store.txn(success=[Put("b/1", b"", session.lease)])
        assert session.is_valid
        world.network.cut("first", "server")
        await until(lambda: not session.is_valid)
        assert not session.has_ended
        assert await world.keys() == ["b/1"]
        await world.until_gone("b/1")
        world.network.mend("first", "server")
        await session.wait_ended()
        with pytest.raises(SessionEnded):
            await store.txn(success=[Put("b/1", b"", session.lease)])

    await world.first.run(work())


@in_a_world
async def test_a_paused_owner_that_comes_back_too_late_learns_that_its_session_has_ended(world: World) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        session = await world.client(world.first).session(TTL_S)
        await session.wait_ended()
        ended.set()

    running = asyncio.ensure_future(world.first.run(work()))
    await asyncio.sleep(1)
    world.first.pause()
    await asyncio.sleep(3 * TTL_S)
    world.first.resume()
    await ended.wait()
    await running


@in_a_world
async def test_a_server_that_was_paused_itself_ends_no_session_for_that(world: World) -> None:
    await register(world, world.first, "b/1")
    for pause_s in (TTL_S, 3 * TTL_S, 20 * TTL_S):
        await asyncio.sleep(0.5)
        world.server.pause()
        await asyncio.sleep(pause_s)
        world.server.resume()
    await asyncio.sleep(TTL_S)
    assert await world.keys() == ["b/1"]


@in_a_world
async def test_a_restarted_server_knows_no_session_of_its_former_life(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        session = await store.session(TTL_S)
        await store.txn(success=[Put("b/1", b"", session.lease)])
        world.server.kill()
        world.server.start()
        await world.serve()
        other = await store.session(TTL_S)
        await store.txn(success=[Put("b/2", b"", other.lease)])
        await session.wait_ended()
        assert not other.has_ended
        assert await world.keys() == ["b/2"]

    await world.first.run(work())


# --- lost responses ---


@in_a_world
async def test_a_txn_whose_response_is_lost_is_indeterminate_and_not_repeated(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        await store.txn(success=[Put("a", b"0")])
        world.network.cut("server", "first")
        txn = asyncio.ensure_future(store.txn(success=[Put("a", b"1")]))
        revision = (await world.store.range("")).revision
        await anext(world.store.watch("", from_revision=revision + 1))
        world.network.reset("first")
        with pytest.raises(IndeterminateResult):
            await txn
        world.network.mend("server", "first")
        (found,) = (await store.txn(success=[Get("a")])).found
        assert found is not None and (found.value, found.mod_revision) == (b"1", revision + 1)

    await world.first.run(work())


@in_a_world
async def test_a_txn_that_cannot_be_sent_says_that_nothing_was_changed(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        await store.txn(success=[Put("a", b"0")])
        world.server.kill()
        await asyncio.sleep(1)
        world.network.start("server")  # so that connections are refused
        with pytest.raises(MetadataUnavailable):
            await store.txn(success=[Put("a", b"1")])

    await world.first.run(work())


@in_a_world
async def test_a_txn_that_waits_for_the_server_is_sent_once_it_is_there(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        await store.txn(success=[Put("a", b"0")])
        world.server.kill()
        await asyncio.sleep(1)
        world.network.start("server")
        txn = asyncio.ensure_future(store.txn(success=[Put("a", b"1")]))
        await asyncio.sleep(2)
        world.server.start()
        await world.serve()
        await txn
        assert (await store.range("")).key_values[0].value == b"1"

    await world.first.run(work())


# --- watches ---


@pytest.mark.parametrize("seed", range(5))
def test_a_watch_over_lost_connections_gives_every_change_once_and_in_order(seed: int) -> None:
    async def body() -> None:
        world = World(seed)
        await world.serve()
        seen: list[EventBatch] = []
        started = (await world.store.range("")).revision + 1

        async def follow() -> None:
            store = world.client(world.first)
            async for batch in store.watch("k/", from_revision=started):
                seen.append(batch)

        async def write() -> None:
            store = world.client(world.second)
            for number in range(200):
                await store.txn(success=[Put(f"k/{number % 7}", b"%d" % number)])

        following = asyncio.ensure_future(world.first.run(follow()))
        writing = asyncio.ensure_future(world.second.run(write()))
        chance = random.Random(seed)
        while not writing.done():
            await asyncio.sleep(chance.expovariate(2))
            world.network.reset("first")
        await writing
        await until(lambda: len(seen) == 200 or following.done())
        values = [event.key_value.value for batch in seen for event in batch.events if event.key_value is not None]
        assert values == [b"%d" % number for number in range(200)]
        following.cancel()

    run(body())


@in_a_world
async def test_a_watch_after_a_restart_of_the_server_says_what_it_may_have_missed(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        await store.txn(success=[Put("a", b"")])
        watch = store.watch("", from_revision=(await store.range("")).revision)
        await anext(watch)
        world.network.cut("first", "server")
        world.network.reset("first")
        await world.store.txn(success=[Put("missed", b"")])
        world.server.kill()
        world.server.start()
        world.network.mend("first", "server")
        await world.serve()
        with pytest.raises(RevisionCompacted):
            await anext(watch)

    await world.first.run(work())


@in_a_world
async def test_a_watch_that_is_not_read_holds_a_limited_number_of_changes_and_goes_on_later(world: World) -> None:
    async def work() -> None:
        store = world.client(world.first)
        watch = store.watch("", from_revision=(await store.range("")).revision + 1)
        await store.txn(success=[Put("k", b"first")])
        await anext(watch)
        for number in range(3000):
            await world.store.txn(success=[Put("k", b"%d" % number)])
        await asyncio.sleep(60)
        for number in range(3000):
            ((_, found),) = (await anext(watch)).events
            assert found is not None and found.value == b"%d" % number

    await world.first.run(work())


# --- broken peers, on a real socket ---


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[tuple[Path, ServedMetadataStore]]:
    host = system_host()
    store = SqliteMetadataStore.open(SystemDisk(), directory / "metadata.db")
    server = await MetadataServer.open(host, store, directory / "s")
    client = ServedMetadataStore.at(host, directory / "s")
    yield directory / "s", client
    await client.close()
    await server.close()
    await store.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",  # a message of 4 GiB
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x04\x93\xa3abc",
        b"GET / HTTP/1.1\r\n\r\n",
        encode(RangeRequest(1, "xyz")).replace(b"xyz", b"\xff\xfe\xfd"),
        encode(RenewSession(1, 2))[:-1] + b"\xc0",
    ],
)
async def test_a_peer_that_sends_garbage_is_sent_away_and_others_are_served(tmp_path: Path, garbage: bytes) -> None:
    async with serving(tmp_path) as (path, store):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(garbage)
        assert await reader.read() == b""
        writer.close()
        assert (await store.txn([is_absent("a")], [Put("a", b"")])).succeeded


async def test_a_peer_that_reads_nothing_does_not_hold_up_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as (path, store):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(encode(WatchRequest(1, "", 1)))
        for number in range(30):
            await store.txn(success=[Put("large", bytes(100_000 + number))])
        assert len((await store.range("")).key_values) == 1
        writer.close()


async def test_the_watches_and_sessions_of_a_peer_are_limited(tmp_path: Path) -> None:
    async with serving(tmp_path) as (path, store):
        reader, writer = await asyncio.open_unix_connection(path)
        for number in range(served_server.WATCHES_MAX + 1):
            writer.write(encode(WatchRequest(number, "", 1)))
        assert b"METADATA_REFUSED" in await reader.read(1000)
        for lease in range(1, 1026):
            writer.write(encode(OpenSession(lease, lease, 60)))
        received = b""
        while b"METADATA_REFUSED" not in received:
            received += await reader.read(1 << 20)
        writer.close()
        assert (await store.range("")).key_values == ()


async def test_more_peers_than_allowed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_server, "CONNECTIONS_MAX", 2)
    async with serving(tmp_path) as (path, store):
        await store.range("")
        writers = [(await asyncio.open_unix_connection(path))[1] for _ in range(1)]
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        for each in (writer, *writers):
            each.close()


async def test_many_txns_at_once_keep_their_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, store):
        results = await asyncio.gather(*(store.txn(success=[Put("a", b"%d" % number)]) for number in range(500)))
        revisions = [result.revision for result in results]
        assert revisions == sorted(revisions)
        (found,) = (await store.range("")).key_values
        assert found.value == b"499"
