"""A future whose callbacks run immediately."""

from __future__ import annotations

import pytest

from flymq.host.prompt_future import PromptFuture


def test_callbacks_run_when_the_result_is_set_and_at_once_afterwards() -> None:
    future: PromptFuture[int] = PromptFuture()
    seen: list[int] = []
    future.add_done_callback(lambda done: seen.append(done.result()))
    assert not future.done() and seen == []
    future.set_result(1)
    future.add_done_callback(lambda done: seen.append(done.result() + 1))
    assert future.done() and seen == [1, 2]


async def test_an_error_is_raised_by_the_result_and_by_await() -> None:
    future: PromptFuture[int] = PromptFuture()
    future.set_exception(ValueError("no"))
    assert isinstance(future.exception(), ValueError)
    with pytest.raises(ValueError, match="no"):
        future.result()
    with pytest.raises(ValueError, match="no"):
        await future


def test_the_first_outcome_counts() -> None:
    future: PromptFuture[int] = PromptFuture()
    future.cancel()
    future.set_result(1)
    future.set_exception(ValueError())
    assert future.cancelled() and future.exception() is None
