"""Run a broker in the foreground until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable

from flymq.host.event_loop import TimedEventLoop
from flymq.host.host import system_host
from flymq.host.interpreter import GrowingHeap, tune_interpreter
from flymq.host.process import raise_open_files_limit
from flymq.server.assemble import Server, assemble
from flymq.server.config import Config
from flymq.server.logging_setup import set_up_logging

logger = logging.getLogger(__name__)


def run(config: Config, on_ready: Callable[[Server], None]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code: 0 after a clean shutdown, 1 after a failed fsync."""
    set_up_logging(config.log)
    with asyncio.Runner(loop_factory=TimedEventLoop) as runner:
        return runner.run(_run(config, on_ready))


async def _run(config: Config, on_ready: Callable[[Server], None]) -> int:
    raise_open_files_limit()
    tune_interpreter()
    server = assemble(system_host(), config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await server.start()
    replicas = server.broker.replicas
    heap = GrowingHeap(len(replicas))
    replicas.topic_watchers.append(lambda _: heap.grown(len(replicas)))
    on_ready(server)
    waits = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(server.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    logger.info("stopping")
    await server.stop()
    return 0 if server.fatal_error is None else 1
