"""A simulated machine: it can be started, killed, paused and restarted, and lose power at any byte.

What runs on it is the shipped code, with the `Host` made here. All machines of a simulation share one loop
(virtual_time.py), one network and one seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from flymq.host.host import Host
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import Life, LoopClock

T = TypeVar("T")


class SlowThreads:
    """Runs the work after a random delay, sometimes a long one. The threads of a dead machine do nothing."""

    def __init__(self, chance: random.Random, life: Callable[[], Life]) -> None:
        """`life` returns the current life of the machine."""
        self._chance = chance
        self._life = life

    async def run(self, work: Callable[[], T]) -> T:
        life = self._life()
        mean_s = 0.002 if self._chance.random() < 0.9 else 0.2
        await asyncio.sleep(self._chance.expovariate(1 / mean_s))
        if life.is_over:  # a test has called the machine's code from outside
            raise asyncio.CancelledError
        return work()

    def close(self) -> None:
        pass


class SimulatedMachine:
    """A machine, across restarts."""

    def __init__(self, name: str, network: SimulatedNetwork, chance: random.Random) -> None:
        self.name = name
        self.disk = SimulatedDisk(chance.getrandbits(64))
        self.disk.on_power_lost = self.lose_power
        self.host = Host(
            LoopClock(asyncio.get_running_loop()),
            self.disk,
            network.machine(name),
            chance,
            lambda name, count: SlowThreads(chance, lambda: self._life),
        )
        self._network = network
        self._life = Life()
        self._has_power = True

    @property
    def is_up(self) -> bool:
        return not self._life.is_over

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the machine and return its result. Raises MachineDied if the machine died before."""
        life = self._life
        task = life.begin(work, self.name)
        waits: list[asyncio.Future[Any]] = [task, life.over]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if life.is_over:
            raise MachineDied(self.name)
        return task.result()

    async def until_dead(self) -> None:
        await asyncio.shield(self._life.over)

    def kill(self) -> None:
        """Kill the process, as by kill -9: its writes are in the cache, and its peers see the connections close."""
        self._life.end()
        self._network.stop(self.name, is_heard=True)

    def lose_power(self) -> None:
        """Lose power: unsynced writes may be lost, and peers notice nothing."""
        self._has_power = False
        self.disk.bytes_until_cut = 0
        self._life.end()
        self._network.stop(self.name, is_heard=False)

    def start(self) -> None:
        """Start again with the content of the disk."""
        assert not self.is_up, "the machine is already running"
        if self._has_power:
            self.disk.end_process()
        else:
            self._has_power = True
            self.disk.cut_power()
        self._network.start(self.name)
        self._life = Life()

    def pause(self) -> None:
        """Pause, as by SIGSTOP, until `resume`."""
        self._life.pause()

    def resume(self) -> None:
        self._life.resume()


class MachineDied(Exception):
    """The machine was killed or lost power before the work was done."""
