"""The reserve of space for a full disk, and the gates that it closes and opens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from flymq.host.clock import ManualClock
from flymq.host.simulated_disk import SimulatedDisk
from flymq.host.tasks import InlineThreads
from flymq.model.errors import DiskFull, TooManyOpenFiles
from flymq.storage.headroom import Headroom

DATA = Path("/data")
RESERVE = DATA / "reserve"


def new_headroom(disk: SimulatedDisk, reserve_bytes: int = 1_000_000) -> Headroom:
    disk.make_directory(DATA)
    headroom = Headroom(disk, DATA, ManualClock(), InlineThreads(), reserve_bytes=reserve_bytes)
    headroom.open()
    return headroom


async def test_the_reserve_is_given_back_when_the_disk_is_full_and_taken_again_when_there_is_room() -> None:
    disk = SimulatedDisk()
    headroom = new_headroom(disk)
    assert disk.size(RESERVE) == 1_000_000
    disk.bytes_free = 0
    headroom.report(DiskFull("no space left"))
    assert disk.bytes_free == 1_000_000 and not disk.exists(RESERVE)
    with pytest.raises(DiskFull):
        headroom.gate_of("orders").check()
    headroom.gate_of("__offsets").check()
    disk.bytes_free = 1_999_999
    await headroom.check()
    assert headroom.is_disk_full
    disk.bytes_free = 2_000_000
    await headroom.check()
    assert disk.size(RESERVE) == 1_000_000
    headroom.gate_of("orders").check()


async def test_internal_topics_may_use_half_of_the_reserve() -> None:
    disk = SimulatedDisk()
    headroom = new_headroom(disk)
    headroom.report(DiskFull("no space left"))
    disk.bytes_free = 499_999
    await headroom.check()
    with pytest.raises(DiskFull):
        headroom.gate_of("__offsets").check()
    disk.bytes_free = 600_000
    await headroom.check()
    headroom.gate_of("__offsets").check()


async def test_a_reserve_follows_its_setting() -> None:
    disk = SimulatedDisk()
    new_headroom(disk)
    new_headroom(disk, 10_000)
    assert disk.size(RESERVE) == 10_000
    new_headroom(disk, 0)
    assert not disk.exists(RESERVE)


async def test_postponed_work_comes_before_the_first_write_of_a_client() -> None:
    disk = SimulatedDisk()
    headroom = new_headroom(disk)
    tries: list[bool] = []

    async def work() -> None:
        tries.append(headroom.gate_of("orders").refusal is not None)
        if disk.bytes_free == 0:
            raise DiskFull("no space left")

    disk.bytes_free = 0
    await headroom.when_room(work)
    disk.bytes_free = 5_000_000
    await headroom.check()
    assert tries == [False, True]
    assert not headroom.is_disk_full


async def test_a_report_from_another_thread_arrives() -> None:
    disk = SimulatedDisk()
    headroom = new_headroom(disk)
    closed: list[str] = []
    headroom.on_files_out.append(lambda: closed.append("some"))
    await asyncio.to_thread(headroom.report, TooManyOpenFiles("none is free"))
    await asyncio.sleep(0)
    assert headroom.is_out_of_files and closed == ["some"]
    await headroom.check()
    assert not headroom.is_out_of_files
