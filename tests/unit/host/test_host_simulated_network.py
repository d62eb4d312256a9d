"""The simulated network behaves as TCP does where a program can tell, and its faults are those that were asked for."""

from __future__ import annotations

import asyncio
import random

import pytest

from flymq.host.network import Accepted
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import run
from flymq.model.errors import AddressInUse, ListenFailed


class End(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.received = b""
        self.events: list[str] = []
        self.transport: asyncio.Transport
        self.happened = asyncio.Event()
        self.stays_open = False

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.happened.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.happened.set()

    def eof_received(self) -> bool:
        self._note("eof")
        return self.stays_open

    def connection_lost(self, error: Exception | None) -> None:
        self._note("lost" if error is None else type(error).__name__)

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    async def until(self, *, received: int = 0, event: str = "") -> None:
        async with asyncio.timeout(60):
            while len(self.received) < received or (event and event not in self.events):
                self.happened.clear()
                await self.happened.wait()


class Buffered(asyncio.BufferedProtocol):
    """Takes three bytes at a time."""

    def __init__(self) -> None:
        self.received = b""
        self._buffer = bytearray(3)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]


async def connected(network: SimulatedNetwork) -> tuple[End, End]:
    """Return both ends of a connection from "client" to "server"."""
    server = End()
    beginning: list[asyncio.Task[None]] = []

    def accept(accepted: Accepted) -> None:
        assert accepted.peer_host == "client"
        beginning.append(asyncio.ensure_future(accepted.begin(server, tls=None, within_s=1)))

    opened = await network.machine("server").listen("server", 0, 100, accept)
    client = await network.machine("client").connect(End, "server", opened.port, None)
    await asyncio.sleep(0.1)
    assert server.transport.get_extra_info("sockname") == client.transport.get_extra_info("peername")
    return client, server


def new_network(seed: int = 1) -> SimulatedNetwork:
    return SimulatedNetwork(random.Random(seed))


@pytest.mark.parametrize("seed", range(5))
def test_bytes_arrive_whole_and_in_order_however_they_are_cut(seed: int) -> None:
    async def go() -> None:
        client, server = await connected(new_network(seed))
        sent = random.Random(seed).randbytes(2_000_000)
        for start in range(0, len(sent), 100_000):
            client.transport.write(sent[start : start + 100_000])
        await server.until(received=len(sent))
        assert server.received == sent

    run(go())


def test_a_buffered_protocol_gets_what_fits_into_its_buffer() -> None:
    async def go() -> None:
        client, server = await connected(new_network())
        buffered = Buffered()
        server.transport.set_protocol(buffered)
        client.transport.write(b"ten bytes!")
        await asyncio.sleep(1)
        assert buffered.received == b"ten bytes!"

    run(go())


def test_who_does_not_read_holds_up_who_writes() -> None:
    async def go() -> None:
        client, server = await connected(new_network())
        server.transport.pause_reading()
        client.transport.write(bytes(1_000_000))
        assert client.events == ["pause"]
        await asyncio.sleep(10)
        assert server.received == b""
        assert client.transport.get_write_buffer_size() > 500_000
        server.transport.resume_reading()
        await server.until(received=1_000_000)
        await client.until(event="resume")

    run(go())


def test_closing_sends_what_was_written_and_the_other_side_may_still_answer() -> None:
    async def go() -> None:
        client, server = await connected(new_network())
        server.stays_open = True
        client.transport.write(b"question")
        client.transport.write_eof()
        await server.until(event="eof")
        server.transport.write(b"answer")
        server.transport.close()
        await client.until(event="lost")
        assert (server.received, client.received) == (b"question", b"answer")
        assert client.events == ["eof", "lost"]

    run(go())


def test_who_writes_to_an_aborted_connection_is_told_that_it_is_reset() -> None:
    async def go() -> None:
        client, server = await connected(new_network())
        server.stays_open = True
        client.transport.abort()
        await server.until(event="eof")
        server.transport.write(b"is anybody there?")
        await server.until(event="ConnectionResetError")
        assert client.received == b""

    run(go())


def test_a_cut_holds_up_one_way_and_loses_nothing() -> None:
    async def go() -> None:
        network = new_network()
        client, server = await connected(network)
        network.cut("client", "server")
        client.transport.write(b"later")
        server.transport.write(b"now")
        await client.until(received=3)
        await asyncio.sleep(100)
        assert server.received == b""
        network.mend("client", "server")
        await server.until(received=5)
        assert server.received == b"later"

    run(go())


def test_a_slow_link_takes_longer() -> None:
    async def go() -> None:
        network = new_network()
        client, server = await connected(network)
        network.slow("client", "server", delay_s=1_000)
        begun_s = asyncio.get_running_loop().time()
        client.transport.write(b"x")
        await asyncio.wait_for(server.happened.wait(), 100_000)
        assert asyncio.get_running_loop().time() - begun_s > 10

    run(go())


def test_a_reset_is_told_to_both_ends() -> None:
    async def go() -> None:
        network = new_network()
        client, server = await connected(network)
        client.transport.write(b"lost on the way")
        network.reset("client")
        await client.until(event="ConnectionResetError")
        await server.until(event="ConnectionResetError")
        assert server.received == b""

    run(go())


def test_a_killed_process_is_noticed_and_a_machine_without_power_only_when_it_is_back() -> None:
    async def go() -> None:
        network = new_network()
        client, server = await connected(network)
        network.stop("server", is_heard=True)
        await client.until(event="ConnectionResetError")
        assert server.events == []
        network.start("server")

        client, server = await connected(network)
        network.stop("server", is_heard=False)
        client.transport.write(b"anybody?")
        await asyncio.sleep(100)
        assert client.events == []
        network.start("server")
        client.transport.write(b"anybody now?")
        await client.until(event="ConnectionResetError")

    run(go())


def test_connecting_is_refused_where_nobody_listens_and_waits_while_the_way_is_cut() -> None:
    async def go() -> None:
        network = new_network()
        machine = network.machine("client")
        with pytest.raises(ConnectionRefusedError):
            await machine.connect(End, "server", 9092, None)
        await network.machine("server").listen("", 9092, 100, lambda accepted: accepted.close())
        network.cut("server", "client")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(machine.connect(End, "server", 9092, None), 60)
        network.mend("server", "client")
        end = await machine.connect(End, "server", 9092, None)
        await end.until(event="eof")

    run(go())


def test_a_port_has_one_owner_until_it_is_closed() -> None:
    async def go() -> None:
        machine = new_network().machine("server")
        opened = await machine.listen("server", 9092, 100, lambda accepted: None)
        with pytest.raises(AddressInUse):
            await machine.listen("server", 9092, 100, lambda accepted: None)
        with pytest.raises(ListenFailed):
            await machine.listen("elsewhere", 9093, 100, lambda accepted: None)
        opened.close()
        await machine.listen("server", 9092, 100, lambda accepted: None)

    run(go())
