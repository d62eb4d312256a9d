"""Processes that this one starts and outlives. A child learns of the end of its parent from its stdin, which then ends.

That works for every end of the parent, kill -9 included, and on every system: the kernel closes the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

_STDIN = 0


class ChildProcess:
    """A running child. Its stderr is that of its parent."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def first_line(self) -> str:
        """Return the first line that it writes to stdout; an empty text if it ends before."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode(errors="replace").strip()

    async def wait(self) -> int:
        """Return its exit code, or the negative number of the signal that ended it."""
        return await self._process.wait()

    def terminate(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()


async def start_child(command: Sequence[str]) -> ChildProcess:
    """Start a child with a pipe as its stdin, in a session of its own: Ctrl-C in a terminal is for the parent alone."""
    return ChildProcess(await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, start_new_session=True))


def end_with_parent(within_s: float) -> None:
    """Send SIGTERM to this process when its parent has ended; end it at once if it is still there after `within_s`.

    In a thread of its own, so that it works whatever the event loop does.
    """

    def watch() -> None:
        while os.read(_STDIN, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(within_s)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def describe_exit(code: int) -> str:
    """Return an exit code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
