"""A simulated machine stops in the middle of everything, and finds on its disk what was there."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from flymq.host.simulated_host import MachineDied, SimulatedMachine
from flymq.host.simulated_network import SimulatedNetwork
from flymq.host.virtual_time import EverybodyWaits, run

FILE = Path("/data/file")


def new_machine() -> SimulatedMachine:
    chance = random.Random(1)
    machine = SimulatedMachine("one", SimulatedNetwork(chance), chance)
    machine.disk.make_directory(FILE.parent)
    return machine


def test_an_hour_takes_no_time_and_waiting_for_nothing_is_an_error() -> None:
    async def go() -> None:
        begun_s = asyncio.get_running_loop().time()
        await asyncio.sleep(3_600)
        assert asyncio.get_running_loop().time() - begun_s == pytest.approx(3_600)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(EverybodyWaits):
        run(go())


def test_nothing_of_a_killed_process_happens_any_more() -> None:
    async def go() -> None:
        machine = new_machine()
        done: list[str] = []

        async def work() -> None:
            asyncio.get_running_loop().call_later(2, done.append, "a timer")
            inner = asyncio.ensure_future(asyncio.sleep(2))
            inner.add_done_callback(lambda _: done.append("a task"))
            try:
                await asyncio.sleep(10)
            finally:
                done.append("a last word")

        asyncio.get_running_loop().call_later(1, machine.kill)
        with pytest.raises(MachineDied):
            await machine.run(work())
        await asyncio.sleep(60)
        assert done == []
        machine.start()
        assert await machine.run(asyncio.sleep(1, "a new life")) == "a new life"

    run(go())


def test_a_paused_machine_does_later_what_became_due() -> None:
    async def go() -> None:
        machine, done_s = new_machine(), []
        loop = asyncio.get_running_loop()

        async def work() -> None:
            await asyncio.sleep(1)
            done_s.append(loop.time())

        task = asyncio.ensure_future(machine.run(work()))
        await asyncio.sleep(0.5)
        machine.pause()
        await asyncio.sleep(10)
        assert done_s == []
        machine.resume()
        await task
        assert done_s == [pytest.approx(10.5)]

    run(go())


def test_a_killed_process_leaves_what_it_wrote_and_a_power_cut_what_was_synced() -> None:
    async def go() -> None:
        machine = new_machine()

        async def write(*, syncs: bool) -> None:
            disk = machine.host.disk
            disk.lock(FILE.with_name("lock"))
            file = disk.open(FILE)
            file.append([b"some"])
            if syncs:
                file.sync()
                disk.sync_directory(FILE.parent)
            file.append([b"thing"])

        await machine.run(write(syncs=True))
        machine.kill()
        machine.start()
        assert machine.host.disk.read(FILE) == b"something"
        machine.host.disk.remove(FILE)
        await machine.run(write(syncs=True))
        machine.lose_power()
        machine.start()
        assert machine.host.disk.read(FILE).startswith(b"some")
        machine.host.disk.lock(FILE.with_name("lock")).release()

    run(go())


def test_power_that_goes_in_the_middle_of_a_write_ends_the_machine_there() -> None:
    async def go() -> None:
        machine = new_machine()
        done: list[str] = []
        machine.disk.bytes_until_cut = 3

        async def write() -> None:
            machine.host.disk.open(FILE).append([bytes(100)])
            done.append("it went on")

        with pytest.raises(MachineDied):
            await machine.run(write())
        assert not machine.is_up
        assert done == []

    run(go())
