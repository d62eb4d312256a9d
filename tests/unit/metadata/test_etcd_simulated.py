"""The client of etcd on a simulated network, in virtual time: which member it asks, and when it doubts its session.

The members are scripts that answer as etcd does; what etcd itself does is tested with a real one.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flymq.host.network import Accepted
from flymq.host.simulated_host import SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import run
from flymq.metadata.etcd.config import Endpoint, EtcdConfig
from flymq.metadata.etcd.store import EtcdMetadataStore
from flymq.model.errors import MetadataUnavailable

PORT = 2379
TTL_S = 6
HEADER = {"revision": "7", "cluster_id": "1"}


class Member(asyncio.Protocol):
    """A connection of a scripted member."""

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, rest = self._received.partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0]) if found else 0
        if found and len(rest) >= length:
            self._received = rest[length:]
            path = head.split(b" ")[1].decode()
            self._paths.append(path)
            body = json.dumps(self._answer(path)).encode()
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def _answer(self, path: str) -> dict[str, Any]:
        match path:
            case "/v3/maintenance/status":
                return {"header": HEADER, "version": "3.6.9"}
            case "/v3/lease/grant":
                return {"header": HEADER, "TTL": str(TTL_S)}
            case "/v3/lease/keepalive":
                return {"result": {"header": HEADER, "TTL": str(TTL_S)}}
        return {"header": HEADER}


class World:
    """A broker's machine and two members."""

    def __init__(self) -> None:
        chance = random.Random(1)
        self.network = SimulatedNetwork(chance)
        self.broker, self.first, self.second = (
            SimulatedMachine(name, self.network, chance) for name in ("broker", "first", "second")
        )
        self.paths: dict[str, list[str]] = {"first": [], "second": []}

    async def start(self) -> EtcdMetadataStore:
        for machine in (self.first, self.second):
            await machine.run(self._listen(machine))
        endpoints = tuple(Endpoint(name, PORT, False) for name in self.paths)
        return await EtcdMetadataStore.open(self.broker.host, EtcdConfig(endpoints, "/flymq/c/"))

    async def _listen(self, machine: SimulatedMachine) -> None:
        def accept(accepted: Accepted) -> None:
            begun = accepted.begin(Member(self.paths[machine.name]), tls=None, within_s=1)
            beginning.append(asyncio.ensure_future(begun))

        beginning: list[asyncio.Task[None]] = []
        await machine.host.network.listen(machine.name, PORT, 10, accept)

    @property
    def now_s(self) -> float:
        return self.broker.host.clock.monotonic_s()


def in_a_world(test: Callable[[World, EtcdMetadataStore], Awaitable[None]]) -> Callable[[], None]:
    async def body() -> None:
        world = World()
        await world.broker.run(on_the_broker(world))

    async def on_the_broker(world: World) -> None:
        store = await world.start()
        await test(world, store)
        await store.close()

    def call() -> None:
        run(body())

    call.__name__ = test.__name__  # type: ignore[attr-defined, unused-ignore]
    return call


@in_a_world
async def test_one_member_is_asked_until_it_fails(world: World, store: EtcdMetadataStore) -> None:
    for _ in range(5):
        await store.range("")
    assert world.paths["second"] == ["/v3/maintenance/status"]  # the check at the start
    world.first.kill()
    await store.range("")
    assert world.paths["second"][1:] == ["/v3/kv/range"]


@in_a_world
async def test_a_member_that_vanishes_costs_a_read_its_timeout_once(world: World, store: EtcdMetadataStore) -> None:
    world.first.lose_power()
    started_s = world.now_s
    await store.range("")
    assert 2.0 <= world.now_s - started_s < 2.5
    started_s = world.now_s
    await store.range("")
    assert world.now_s - started_s < 0.5


@in_a_world
async def test_a_session_stays_valid_while_one_member_vanishes(world: World, store: EtcdMetadataStore) -> None:
    session = await store.session(TTL_S)
    world.first.lose_power()
    until_s = world.now_s + 10 * TTL_S
    while world.now_s < until_s:
        assert session.is_valid
        await asyncio.sleep(0.05)


@in_a_world
async def test_a_session_is_in_doubt_when_nine_tenths_of_its_ttl_have_passed(
    world: World, store: EtcdMetadataStore
) -> None:
    session = await store.session(TTL_S)
    cut_s = world.now_s
    for member in ("first", "second"):
        world.network.cut("broker", member)
    while session.is_valid:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert world.now_s - cut_s <= 0.9 * TTL_S + 0.01
    assert not session.has_ended
    for member in ("first", "second"):
        world.network.mend("broker", member)
    while not session.is_valid:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@in_a_world
async def test_without_any_member_a_call_ends_after_its_timeout(world: World, store: EtcdMetadataStore) -> None:
    world.first.lose_power()
    world.second.lose_power()
    started_s = world.now_s
    with pytest.raises(MetadataUnavailable):
        await store.range("")
    assert world.now_s - started_s <= 5.0
