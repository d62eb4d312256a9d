"""The load generator: what it counts, and how much it has under way."""

import socket
import threading
from itertools import pairwise

import pytest
from benchmarks.load import FrameSizes, Occurrences, Requests, drive


def frame(size: int) -> bytes:
    return b"HDR" + size.to_bytes(4, "big") + bytes(size)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_frames_are_counted_however_they_are_cut(step):
    data = frame(5) + frame(0) + frame(300)
    frames = FrameSizes(header_bytes=7, length_at=3)
    sizes: list[int] = []
    for start, end in pairwise([*range(0, len(data), step), len(data)]):
        sizes += frames.feed(memoryview(data[start:end]))
    assert sizes == [5, 0, 300]


@pytest.mark.parametrize("step", [1, 2, 5])
def test_a_marker_is_counted_once_also_where_it_is_cut(step):
    data, marker = b"..MARK.MAMARK..MARK", Occurrences(b"MARK")
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    assert sum(marker.feed(memoryview(piece)) for piece in pieces) == 3


def test_no_more_requests_are_under_way_than_allowed():
    ours, theirs = socket.socketpair()
    most = 0

    def answer() -> None:
        nonlocal most
        waiting = 0
        while received := theirs.recv(1 << 16):
            waiting += len(received)
            most = max(most, waiting)
            while waiting:
                theirs.sendall((0).to_bytes(4, "big"))
                waiting -= 1

    server = threading.Thread(target=answer)
    server.start()
    elapsed_s = drive([Requests(ours, b"?", 50, inflight=4, frames=FrameSizes(4, 0))])
    server.join()
    theirs.close()
    assert elapsed_s > 0
    assert 1 <= most <= 4


def test_a_server_that_closes_the_connection_ends_the_load():
    ours, theirs = socket.socketpair()
    theirs.close()
    with pytest.raises(ConnectionError), ours:
        drive([Requests(ours, b"?", 1, inflight=1, frames=FrameSizes(4, 0))])
