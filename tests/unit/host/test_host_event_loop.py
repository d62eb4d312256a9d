"""The loop of a broker measures its own iterations."""

from __future__ import annotations

import asyncio

import pytest

from flymq.host import event_loop
from flymq.host.event_loop import STALL_S, TimedEventLoop


class Watch:
    """A clock that moves only when a callback says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch(monkeypatch):
    watch = Watch()
    monkeypatch.setattr(event_loop, "perf_counter", watch)
    return watch


def run(callbacks):
    with asyncio.Runner(loop_factory=TimedEventLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TimedEventLoop)

        async def main():
            for callback in callbacks:
                loop.call_soon(callback)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

        runner.run(main())
        return loop.take_longest_s(), loop.take_longest_s(), loop.stalls


def test_callbacks_of_one_iteration_count_together(watch):
    def work():
        watch.now_s += STALL_S * 0.75

    assert run([work, work]) == (STALL_S * 1.5, 0.0, 1)


def test_a_short_iteration_is_no_stall(watch):
    def work():
        watch.now_s += STALL_S / 2

    assert run([work]) == (STALL_S / 2, 0.0, 0)
