"""Run a broker, or several under a supervisor, in the foreground until they are stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence

from flymq.host.event_loop import TimedEventLoop
from flymq.host.host import system_host
from flymq.host.interpreter import GrowingHeap, tune_interpreter
from flymq.host.process import raise_open_files_limit
from flymq.server.assemble import Server, assemble
from flymq.server.config import Config
from flymq.server.logging_setup import set_up_logging
from flymq.server.supervisor import SupervisedBroker, Supervisor

logger = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(config: Config, on_ready: Callable[[Server], None]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code: 0 after a clean shutdown, 1 after a failed fsync."""
    set_up_logging(config.log, broker_id=config.broker.id if config.is_clustered else None)
    with asyncio.Runner(loop_factory=TimedEventLoop) as runner:
        return runner.run(_run(config, on_ready))


async def _run(config: Config, on_ready: Callable[[Server], None]) -> int:
    raise_open_files_limit()
    tune_interpreter()
    server = assemble(system_host(), config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    await server.start()
    replicas = server.broker.replicas
    heap = GrowingHeap(len(replicas))
    replicas.topic_watchers.append(lambda _: heap.grown(len(replicas)))
    on_ready(server)
    await _first_of(stop, server.failed)
    logger.info("stopping")
    await server.stop()
    return 0 if server.fatal_error is None else 1


def run_supervisor(
    config: Config,
    command: Sequence[str],
    count: int,
    on_ready: Callable[[SupervisedBroker], None],
    on_all_ready: Callable[[list[SupervisedBroker]], None] = lambda brokers: None,
) -> int:
    """Run brokers, each by `command`, until SIGTERM or SIGINT; return the exit code: 0 if all ended cleanly."""
    set_up_logging(config.log)
    with asyncio.Runner() as runner:
        return runner.run(_run_supervisor(Supervisor(system_host(), config, command, count, on_ready), on_all_ready))


async def _run_supervisor(supervisor: Supervisor, on_all_ready: Callable[[list[SupervisedBroker]], None]) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    starting = asyncio.ensure_future(supervisor.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():  # Ctrl-C: what has been started is stopped
        starting.cancel()
        await asyncio.wait([starting])
        return 0
    starting.result()
    on_all_ready(supervisor.brokers)
    await _first_of(stop, supervisor.failed)
    logger.info("stopping %d brokers", len(supervisor.brokers))
    is_clean = await supervisor.stop()
    return 0 if is_clean and not supervisor.failed.is_set() else 1


async def _first_of(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
