"""Small files that survive one flipped bit and detect two.

A note is a line of JSON followed by the CRC32C of the JSON in eight hexadecimal digits, and the same line once more:

    {"start_offset":0,"recovery_offset":0,"recovery_position":4096} 5be1f9a0
    {"start_offset":0,"recovery_offset":0,"recovery_position":4096} 5be1f9a0
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flymq.host.disk import Disk
from flymq.record.checksum import crc32c

Fact = TypeVar("Fact")


def encode_note(fact: Any) -> bytes:
    body = msgspec.json.encode(fact)
    return b"%b %08x\n" % (body, crc32c(body)) * 2


def parse_note(raw: bytes, kind: type[Fact]) -> Fact | None:
    """Return what the note says; None when none of its lines is whole."""
    half = len(raw) // 2
    for line in (raw[:half], raw[half:]):
        body, checksum = line[:-10], line[-9:-1]
        if checksum == b"%08x" % crc32c(body):
            try:
                return msgspec.json.decode(body, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue  # valid, but of another type
    return None


def read_note(disk: Disk, path: Path, kind: type[Fact]) -> Fact | None:
    """Return what the note at `path` says; None when there is none that can be read."""
    return parse_note(disk.read(path), kind) if disk.exists(path) else None
