"""Local sockets: the same on the system and in a simulation, private, and left behind by nobody's death."""

from __future__ import annotations

import asyncio
import random
import socket
import stat
from pathlib import Path

import pytest

from flymq.host.network import Accepted, Network, SystemNetwork
from flymq.host.simulated_network import SimulatedNetwork
from flymq.model.errors import AddressInUse, ListenFailed


@pytest.fixture(params=["system", "simulated"])
def network(request: pytest.FixtureRequest) -> Network:
    return SystemNetwork() if request.param == "system" else SimulatedNetwork(random.Random(1)).machine("here")


class Line(asyncio.Protocol):
    """Keeps the first bytes it receives."""

    def __init__(self) -> None:
        self.received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.received.done():
            self.received.set_result(data)


async def test_two_ends_of_a_local_socket_talk(network: Network, tmp_path: Path) -> None:
    server = Line()
    beginning: list[asyncio.Task[None]] = []

    def accept(accepted: Accepted) -> None:
        beginning.append(asyncio.ensure_future(accepted.begin(server, tls=None, within_s=1)))

    port = await network.listen_local(tmp_path / "socket", 10, accept)
    client = await network.connect_local(Line, tmp_path / "socket")
    client.transport.write(b"?")
    assert await server.received == b"?"
    server.transport.write(b"!")
    assert await client.received == b"!"
    client.transport.abort()
    server.transport.abort()
    port.close()
    with pytest.raises(OSError):
        await network.connect_local(Line, tmp_path / "socket")


async def test_a_local_socket_that_is_in_use_is_not_taken_over(network: Network, tmp_path: Path) -> None:
    port = await network.listen_local(tmp_path / "socket", 10, lambda accepted: None)
    with pytest.raises(AddressInUse):
        await network.listen_local(tmp_path / "socket", 10, lambda accepted: None)
    port.close()
    (await network.listen_local(tmp_path / "socket", 10, lambda accepted: None)).close()


async def test_only_its_owner_can_open_a_local_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    port = await SystemNetwork().listen_local(path, 10, lambda accepted: None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    port.close()
    assert not path.exists()


async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    (await SystemNetwork().listen_local(path, 10, lambda accepted: None)).close()


async def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ListenFailed, match="at most 103 bytes"):
        await SystemNetwork().listen_local(tmp_path / ("x" * 100), 10, lambda accepted: None)


async def test_a_file_in_the_way_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("precious")
    with pytest.raises(AddressInUse):
        await SystemNetwork().listen_local(path, 10, lambda accepted: None)
    assert path.read_text() == "precious"
