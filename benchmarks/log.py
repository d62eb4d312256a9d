"""The log alone, beside bare loops of system calls on the same disk in the same run.

Rates are per second of CPU time, the kernel's included: nothing here waits for the disk, so that limits it,
and a neighbour on the same machine does not change it.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.row import Row, row, show
from flymq.host.disk import File, SystemDisk
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.checksum import crc32c
from flymq.record.header import parse_header
from flymq.storage.recovery.checkpoint import CHECKPOINT_NAME, CLEAN_NAME
from flymq.storage.recovery.open_log import open_log

_MB = 1 << 20
_SEGMENT_BYTES = 128 * _MB


def run(quick: bool = False) -> list[Row]:
    rounds, volume = (1, 32 * _MB) if quick else (5, 128 * _MB)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="flymq-bench-", dir=Path.cwd()) as scratch:
        for size in (100, 1000):
            for batch_bytes in (16 << 10, 64 << 10, _MB):
                rows += _append(Path(scratch), size, batch_bytes, volume, rounds)
        for batch_bytes in (64 << 10, _MB):
            rows += _read(Path(scratch), batch_bytes, volume, rounds)
        rows += _open_clean(Path(scratch), 1000)
        rows += _recover(Path(scratch), volume, rounds)
    return rows


def _batch(message_bytes: int, batch_bytes: int) -> bytes:
    count = max(1, batch_bytes // (message_bytes + 8))
    return bytes(encode_batch([(None, b"x" * message_bytes)] * count, timestamp_ms=1_700_000_000_000))


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        yield Path(folder)


def _config() -> TopicConfig:
    return TopicConfig(segment_bytes=_SEGMENT_BYTES, max_message_bytes=8 * _MB)


def _rate(total: int, work: Callable[[], None]) -> float:
    started = time.thread_time()
    work()
    return total / (time.thread_time() - started) / _MB


def _append(scratch: Path, message_bytes: int, batch_bytes: int, volume: int, rounds: int) -> list[Row]:
    """Append the same batch over and over, beside write and writev of the same bytes to a plain file."""
    batch = _batch(message_bytes, batch_bytes)
    count = volume // len(batch)
    ours, writes, writevs = [], [], []
    for _ in range(rounds):
        with _folder(scratch) as folder:
            log = open_log(SystemDisk(), folder / "log", _config())

            def append(log=log) -> None:  # type: ignore[no-untyped-def]
                for _ in range(count):
                    log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)

            ours.append(_rate(volume, append))
        head, rest = batch[:16], memoryview(batch)[16:]
        writes.append(_bare(scratch, volume, count, lambda fd: os.write(fd, batch)))
        writevs.append(_bare(scratch, volume, count, lambda fd, head=head, rest=rest: os.writev(fd, [head, rest])))  # type: ignore[misc]
    limit = max(median(writes), median(writevs))
    return [
        row(
            f"append {message_bytes} B messages in {_size(batch_bytes)}",
            median(ours),
            "MB/CPU s",
            peer="bare write or writev, the faster",
            peer_value=limit,
            target=">= 0.70" if batch_bytes >= 64 << 10 else "",
        )
    ]


def _bare(scratch: Path, volume: int, count: int, write: Callable[[int], int]) -> float:
    with _folder(scratch) as folder:
        fd = os.open(folder / "file", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:

            def work() -> None:
                for _ in range(count):
                    write(fd)

            return _rate(volume, work)
        finally:
            os.close(fd)


def _read(scratch: Path, batch_bytes: int, volume: int, rounds: int) -> list[Row]:
    """Read a log from end to end and send it by sendfile, beside sendfile of the same file without a log."""
    batch = _batch(100, batch_bytes)
    records = parse_header(batch).record_count
    with _folder(scratch) as folder:
        log = open_log(SystemDisk(), folder / "log", _config())
        for _ in range(volume // len(batch)):
            log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)
        ours, bare = [], []
        with _draining_socket() as sender:
            for _ in range(rounds):

                def read() -> None:
                    offset = 0
                    while (found := log.read(offset, bytes_max=_MB)) is not None:
                        _send(sender, _descriptor(found.file), found.position, found.length)
                        offset += found.length // len(batch) * records

                def send() -> None:
                    for segment in log.segments:
                        for position in range(0, segment.size, _MB):
                            _send(sender, _descriptor(segment.file), position, min(_MB, segment.size - position))

                ours.append(_rate(log.size, read))
                bare.append(_rate(log.size, send))
        log.close()
    return [
        row(
            f"read and send, batches of {_size(batch_bytes)}, 1 MB at a time",
            median(ours),
            "MB/CPU s",
            peer="bare sendfile",
            peer_value=median(bare),
        )
    ]


@contextmanager
def _draining_socket() -> Iterator[socket.socket]:
    sender, receiver = socket.socketpair()

    def drain() -> None:
        room = bytearray(_MB)
        while receiver.recv_into(room):
            pass

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        yield sender
    finally:
        sender.close()
        thread.join()
        receiver.close()


def _descriptor(file: File) -> int:
    found = file.fileno()
    assert found is not None, "a file of the system's disk has one"
    return found


def _send(sender: socket.socket, fd: int, position: int, length: int) -> None:
    while length:
        sent = os.sendfile(sender.fileno(), fd, position, length)
        position, length = position + sent, length - sent


def _open_clean(scratch: Path, segments: int) -> list[Row]:
    batch = _batch(100, 1024)
    config = TopicConfig(segment_bytes=1024)
    with _folder(scratch) as folder:
        log = open_log(SystemDisk(), folder, config)
        while len(log.segments) < segments:
            log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)
        log.close()
        started = time.perf_counter()
        log = open_log(SystemDisk(), folder, config)
        elapsed = time.perf_counter() - started
        assert log.recovery.clean
        log.close()
    return [row(f"open a cleanly closed log of {segments} segments", elapsed * 1000, "ms", target="< 1000")]


def _recover(scratch: Path, volume: int, rounds: int) -> list[Row]:
    """Open a log without its marker and checkpoint, beside reading the same files and their CRC32C."""
    batch = _batch(100, 64 << 10)
    ours, bare = [], []
    with _folder(scratch) as folder:
        log = open_log(SystemDisk(), folder, _config())
        for _ in range(volume // len(batch)):
            log.append(batch, leader_epoch=0, now_ms=1_700_000_000_000)
        log.close()
        del log
        for _ in range(rounds):
            for name in (CLEAN_NAME, CHECKPOINT_NAME):
                (folder / name).unlink(missing_ok=True)
            started = time.thread_time()
            log = open_log(SystemDisk(), folder, _config())
            ours.append(log.recovery.scanned_bytes / (time.thread_time() - started) / _MB)
            del log
            bare.append(_read_with_checksum(folder))
    return [
        row(
            "recovery scan",
            median(ours),
            "MB/CPU s",
            peer="bare read with CRC32C",
            peer_value=median(bare),
            target=">= 0.50",
        )
    ]


def _read_with_checksum(folder: Path) -> float:
    total, started = 0, time.thread_time()
    for path in folder.glob("*.log"):
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_MB):
                crc32c(chunk)
                total += len(chunk)
    return total / (time.thread_time() - started) / _MB


def _size(count: int) -> str:
    return f"{count // _MB} MB" if count >= _MB else f"{count >> 10} KB"


if __name__ == "__main__":
    print(show(run(quick="--quick" in sys.argv)))
