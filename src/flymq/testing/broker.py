"""A broker in its own thread, so that blocking and asyncio tests can both use it."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flymq.host.host import system_host
from flymq.host.process import raise_open_files_limit
from flymq.server.assemble import Server, assemble
from flymq.server.settings import load_config


@dataclass(frozen=True, slots=True)
class TestBroker:
    """A running broker."""

    __test__ = False  # not a test, despite its name

    host: str
    port: int
    data_dir: Path
    http_port: int = -1
    """Dedicated HTTP port, if the settings ask for one; the main port speaks HTTP too."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@contextmanager
def running_broker(
    data_dir: Path | None = None, settings: Mapping[str, Any] | None = None, *, config_file: Path | None = None
) -> Iterator[TestBroker]:
    """Start a broker, in dev mode, in a temporary directory unless one is given; stop it at the end.

    `settings` are those of docs/reference/settings.md, by their dotted names.
    """
    with tempfile.TemporaryDirectory(prefix="flymq-") as scratch:
        directory = Path(scratch) if data_dir is None else data_dir
        flags = {"broker.data_dir": str(directory), "broker.dev": True, "listener.port": 0}
        flags |= {"listener.http_port": -1, "storage.reserve_bytes": 0, **(settings or {})}
        thread = _BrokerThread(flags, config_file)
        thread.start()
        try:
            server = thread.wait_ready()
            yield TestBroker(server.config.listener.host, server.port, directory, server.http_port)
        finally:
            thread.stop()


class _BrokerThread(threading.Thread):
    def __init__(self, flags: Mapping[str, Any], config_file: Path | None) -> None:
        super().__init__(name="flymq broker", daemon=True)
        self._flags = flags
        self._config_file = config_file
        self._ready = threading.Event()
        self._server: Server | None = None
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        raise_open_files_limit()
        server = assemble(system_host(), load_config(file=self._config_file, environ={}, flags=self._flags))
        await server.start()
        self._server = server
        self._ready.set()
        await self._stopping.wait()
        await server.stop()

    def wait_ready(self) -> Server:
        self._ready.wait()
        if self._error is not None:
            raise self._error
        assert self._server is not None
        return self._server

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop may close between the check and the call
                self._loop.call_soon_threadsafe(self._stopping.set)
        self.join()
