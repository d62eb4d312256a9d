"""SQLite files that a program has open or has left behind."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

_NO_WAL = b"\x01\x01"  # bytes 18 and 19: the file has no write-ahead log


def read_database(path: Path) -> bytes:
    """Return the content of a database, with the changes in its write-ahead log. Raises the errors of SQLite."""
    with (
        contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as found,
        contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy,
    ):
        found.backup(copy)
        raw = copy.serialize()
        return raw[:18] + _NO_WAL + raw[20:]
