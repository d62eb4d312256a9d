from __future__ import annotations

import asyncio
import random
import threading

from flymq.host.clock import ManualClock, SystemClock
from flymq.host.entropy import new_id, system_entropy
from flymq.host.tasks import InlineThreads, SystemThreads, Tasks


async def test_a_task_that_fails_is_reported_by_its_name() -> None:
    reported = []
    tasks = Tasks(lambda name, error: reported.append((name, str(error))))

    async def fail() -> None:
        raise ValueError("no")

    await asyncio.wait([tasks.spawn("worker", fail())])
    await asyncio.sleep(0)
    assert reported == [("worker", "no")]


async def test_no_task_outlives_its_owner_not_even_one_spawned_at_the_end() -> None:
    ended: list[str] = []
    tasks = Tasks(lambda name, error: ended.append(f"{name} failed"))

    async def wait(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            if name == "first":
                tasks.spawn("second", wait("second"))

    tasks.spawn("first", wait("first"))
    await asyncio.sleep(0)
    await tasks.close()
    assert ended[0] == "first"
    assert len(asyncio.all_tasks()) == 1
    await tasks.close()


async def test_threads_do_the_work_elsewhere_and_inline_ones_here() -> None:
    threads = SystemThreads("disk", 2)
    assert await threads.run(threading.get_ident) != threading.get_ident()
    threads.close()
    assert await InlineThreads().run(threading.get_ident) == threading.get_ident()


def test_a_manual_clock_moves_when_told() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic_s()) == (1000, 0.0)
    clock.move(ms=1500)
    assert (clock.now_ms(), clock.monotonic_s()) == (2500, 1.5)


def test_the_systems_clock_tells_milliseconds_since_1970() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_identities_follow_from_the_chance_passed_in() -> None:
    assert new_id(random.Random(1)) == new_id(random.Random(1))
    assert new_id(system_entropy()) != new_id(system_entropy())
    assert new_id(random.Random(1)).version == 4
