"""Closing all logs: many at once, and no longer than a service manager waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.unit.broker.world import World

from flymq.broker.broker import Broker
from flymq.host.virtual_time import run
from flymq.model.delivery import Acks
from flymq.record.batch import encode_batch
from flymq.storage.log import Log

T = TypeVar("T")
Scenario = Callable[[World, Broker], Awaitable[None]]


class BusyDisk:
    """Threads on a disk that needs a second for each log, and never ends with some."""

    def __init__(self, stuck: str = "none") -> None:
        self._stuck = stuck
        self._running = 0
        self.running_max = 0

    async def run(self, work: Callable[[], T]) -> T:
        self._running += 1
        self.running_max = max(self.running_max, self._running)
        log = getattr(work, "__self__", None)
        await asyncio.sleep(10_000 if isinstance(log, Log) and self._stuck in str(log.directory) else 1)
        self._running -= 1
        return work()

    def close(self) -> None:
        pass


def in_world(scenario: Scenario) -> None:
    async def live() -> None:
        world = World()
        node = await world.start()
        await world.create_topic("quick", 50)
        await world.create_topic("stuck", 2)
        for partition in node.replicas:
            if not partition.name.topic.startswith("__"):
                partition.append(encode_batch([(None, b"x")]), Acks.LEADER)
        await scenario(world, node)
        await world.close()

    run(live())


async def unclean(world: World) -> list[str]:
    """Start again, and return what was not closed."""
    world.machine.kill()
    node = await world.start()
    return [str(each.name) for each in node.replicas if isinstance(each.log, Log) and not each.log.recovery.clean]


def test_logs_are_closed_many_at_once() -> None:
    async def scenario(world: World, node: Broker) -> None:
        disk = BusyDisk()
        began_s = node.clock.monotonic_s()
        await node.replicas.close(disk, within_s=60)
        assert disk.running_max > 8
        assert node.clock.monotonic_s() - began_s < 10  # 56 logs, one second each
        assert await unclean(world) == []

    in_world(scenario)


def test_a_log_that_takes_too_long_is_left_to_recovery_and_the_others_are_closed() -> None:
    async def scenario(world: World, node: Broker) -> None:
        began_s = node.clock.monotonic_s()
        await node.replicas.close(BusyDisk("/stuck~"), within_s=20)
        assert node.clock.monotonic_s() - began_s <= 20
        assert await unclean(world) == ["stuck-0", "stuck-1"]
        assert len(world.read("stuck", 0)) == 1

    in_world(scenario)
