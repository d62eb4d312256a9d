"""How to tell a user what to type: the address of a broker, and the name of this program."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

DEFAULT_PORT = 9092


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_option(host: str, port: int) -> str:
    """Return the --server option that a client on this machine needs, if any."""
    is_local = host in ("", "localhost", "127.0.0.1", "0.0.0.0", "::", "::1")
    if is_local and port == DEFAULT_PORT:
        return ""
    return f" --server {address_of('localhost' if is_local else host, port)}"


def program() -> str:
    """Return how to invoke this program: its name, or its path if it is not on the PATH."""
    path = Path(sys.argv[0])
    if shutil.which("flymq") == str(path.absolute()) or not path.is_file():
        return "flymq"
    shorter = os.path.relpath(path)
    return shorter if len(shorter) < len(str(path)) else str(path)
