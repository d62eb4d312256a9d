"""What a connection sends arrives in order, and a large slice of a file is never whole in memory."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from flymq.gateways.outbox import Outbox
from flymq.host.disk import File, SystemDisk
from flymq.host.simulated_disk import SimulatedDisk
from flymq.storage.segments.segment import LogSlice

MB = 1 << 20
PATH = Path("/data/log")


class Peer(asyncio.Transport):
    """The transport of a client that reads only when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = bytearray()
        self.received = bytearray()
        self.unread_max = 0
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return len(self.unread)

    def is_closing(self) -> bool:
        return self.aborted

    def write(self, data: Any) -> None:
        self.unread += data
        self.unread_max = max(self.unread_max, len(self.unread))

    def abort(self) -> None:
        self.aborted = True

    def read(self) -> None:
        self.received += self.unread
        self.unread.clear()


def simulated_file(size: int) -> tuple[SimulatedDisk, File]:
    disk = SimulatedDisk()
    disk.make_directory(PATH.parent)
    file = disk.open(PATH)
    for megabyte in range(size // MB):
        file.append([megabyte.to_bytes(1) * MB])
    return disk, file


async def test_a_large_slice_of_a_file_without_a_descriptor_is_read_as_the_peer_takes_it() -> None:
    peer = Peer()
    outbox = Outbox(peer)
    _, file = simulated_file(50 * MB)
    large = LogSlice(file, position=MB // 2, length=49 * MB, offsets=1)
    small = LogSlice(file, position=0, length=10, offsets=1)
    outbox.send([b"before", large, b"between", small])
    outbox.send([b"after"])
    assert outbox.held_bytes < 2 * MB
    while not outbox.is_empty:
        peer.read()
        outbox.pump()
        await asyncio.sleep(0)  # it may be the turn of others
    assert peer.unread_max < 2 * MB
    content = file.pread(49 * MB, MB // 2)
    assert bytes(peer.received) == b"before" + content + b"between" + bytes(10) + b"after"


async def test_many_small_slices_are_read_as_the_peer_takes_them(tmp_path: Path) -> None:
    peer = Peer()
    outbox = Outbox(peer)
    file = SystemDisk().open(tmp_path / "log")
    file.append([bytes(range(256)) * 1024])
    outbox.send([LogSlice(file, position=at, length=200_000, offsets=1) for at in range(100)])
    assert peer.unread_max < 2 * MB, "not all 20 MB"
    while not outbox.is_empty:
        peer.read()
        outbox.pump()
        await asyncio.sleep(0)  # it may be the turn of others
    assert peer.unread_max < 2 * MB
    assert bytes(peer.received) == b"".join(file.pread(200_000, at) for at in range(100))


async def test_a_long_response_leaves_in_turns_and_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(Peer):
        """Takes everything at once."""

        def write(self, data: Any) -> None:
            self.received += data

    monkeypatch.setattr("flymq.host.time_slices._SLICE_S", -1.0)  # a turn is over at once
    peer, sent = Fast(), asyncio.Event()
    outbox = Outbox(peer, sent.set)
    _, file = simulated_file(3 * MB)
    outbox.send([b"before", LogSlice(file, position=0, length=3 * MB, offsets=1)])
    assert len(peer.received) < 3 * MB
    await sent.wait()
    assert bytes(peer.received) == b"before" + file.pread(3 * MB, 0)


async def test_a_file_that_cannot_be_read_ends_the_connection() -> None:
    for fault in ("shorter", "refused"):
        peer = Peer()
        outbox = Outbox(peer)
        disk, file = simulated_file(3 * MB)
        outbox.send([b"before", LogSlice(file, position=0, length=3 * MB, offsets=1)])
        peer.read()
        if fault == "shorter":
            file.truncate(MB)
        else:
            disk.fail_next("pread", str(PATH), errno.EIO)
        for _ in range(20):
            outbox.pump()
            peer.read()
            await asyncio.sleep(0)
        assert peer.aborted


@pytest.mark.parametrize("kind", ["sendfile", "no descriptor", "TLS"])
async def test_bytes_and_slices_leave_in_order_through_a_real_socket(tmp_path: Path, kind: str) -> None:
    if kind == "no descriptor":
        _, file = simulated_file(4 * MB)
    else:
        file = SystemDisk().open(tmp_path / "log")
        file.append([bytes(range(256)) * (4 * MB // 256)])
    large = LogSlice(file, position=7, length=3 * MB, offsets=1)
    assert (large.descriptor is None) == (kind == "no descriptor")
    outboxes: list[Outbox] = []

    class Sender(asyncio.Protocol):
        def resume_writing(self) -> None:
            outboxes[0].pump()

    ours, theirs = socket.socketpair()
    server_tls, client = tls() if kind == "TLS" else (None, {})
    accepted = asyncio.get_running_loop().connect_accepted_socket(Sender, ours, ssl=server_tls)
    (transport, _), (reader, writer) = await asyncio.gather(accepted, asyncio.open_connection(sock=theirs, **client))
    outboxes.append(Outbox(transport))
    outboxes[0].send([b"one", large, b"two", large, b"three"])
    if kind == "TLS":
        assert outboxes[0].held_bytes < 2 * MB
    expected = file.pread(3 * MB, 7)
    received = await reader.readexactly(2 * len(expected) + 11)
    assert received == b"one" + expected + b"two" + expected + b"three"
    assert outboxes[0].is_empty
    outboxes[0].close()
    transport.close()
    writer.close()


def tls() -> tuple[ssl.SSLContext, dict[str, Any]]:
    """What both ends of a TLS connection need."""
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("broker").configure_cert(server)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return server, {"ssl": client, "server_hostname": "broker"}
