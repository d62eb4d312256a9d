"""A metadata store for the brokers of one machine: `python -m benchmarks.cluster.served_store FILE SOCKET`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from flymq.host.host import system_host
from flymq.metadata.served.server import MetadataServer
from flymq.metadata.sqlite import SqliteMetadataStore


async def _serve(path: Path, socket: Path) -> None:
    host, stopped = system_host(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    threads = host.new_threads("metadata", 2)
    store = await threads.run(lambda: SqliteMetadataStore.open(host.disk, path, threads=threads, on_fatal=_failed))
    server = await MetadataServer.open(host, store, socket)
    print("ready", flush=True)
    await stopped.wait()
    await server.close()
    await store.close()
    threads.close()


def _failed(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
