"""Ports for what is stopped and started again under one address."""

from __future__ import annotations

import os
import socket
from itertools import count

_FIRST, _LAST = 20_000, 32_000
_next = count(os.getpid() * 37)


def free_port() -> int:
    """Return a port that nobody takes while nothing listens on it.

    It lies below those that the system gives to outgoing connections, which would take it sooner or later. Processes
    that run tests at the same time begin at different places.
    """
    return free_ports(1)


def free_ports(number: int) -> int:
    """Return the first of several such ports in a row."""
    found: list[int] = []
    while len(found) < number:
        port = _FIRST + next(_next) % (_LAST - _FIRST)
        if not _is_free(port) or (found and port != found[-1] + 1):
            found.clear()
        else:
            found.append(port)
    return found[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
