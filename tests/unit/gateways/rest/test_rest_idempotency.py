"""The same key, the same answer."""

import asyncio

import pytest
from starlette.responses import Response

from flymq.gateways.rest.handlers.idempotency import KEPT_S, KEYS_MAX, Answers, Repeatable
from flymq.model.errors import IdempotencyKeyReused, TopicNotFound
from flymq.storage.producers.producer_state import DERIVED_ID_FIRST

SCOPE = ("alice", "orders", "key-1")


class Work:
    """Counts how often it was done."""

    def __init__(self) -> None:
        self.done = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self) -> Response:
        await self.may_end.wait()
        self.done += 1
        return Response(str(self.done))


async def test_work_is_done_once_for_a_key() -> None:
    answers, work = Answers(), Work()
    first, was_repeated = await answers.once(Repeatable(SCOPE, b"body"), 0.0, work)
    assert not was_repeated
    again, was_repeated = await answers.once(Repeatable(SCOPE, b"body"), 1.0, work)
    assert was_repeated
    assert (first.body, again.body, work.done) == (b"1", b"1", 1)


async def test_two_requests_at_once_share_the_work() -> None:
    answers, work = Answers(), Work()
    work.may_end.clear()
    both = asyncio.gather(*(answers.once(Repeatable(SCOPE, b"body"), 0.0, work) for _ in range(2)))
    await asyncio.sleep(0)
    work.may_end.set()
    assert [response.body for response, _ in await both] == [b"1", b"1"]
    assert work.done == 1


async def test_the_same_key_for_another_body_is_refused() -> None:
    answers, work = Answers(), Work()
    await answers.once(Repeatable(SCOPE, b"body"), 0.0, work)
    with pytest.raises(IdempotencyKeyReused):
        await answers.once(Repeatable(SCOPE, b"another"), 0.0, work)


async def test_keys_of_others_and_of_other_topics_are_other_keys() -> None:
    answers, work = Answers(), Work()
    for scope in (SCOPE, ("bob", "orders", "key-1"), ("alice", "events", "key-1")):
        await answers.once(Repeatable(scope, b"body"), 0.0, work)
    assert work.done == 3


async def test_what_failed_may_be_tried_again() -> None:
    async def fail() -> Response:
        raise TopicNotFound

    answers, work = Answers(), Work()
    with pytest.raises(TopicNotFound):
        await answers.once(Repeatable(SCOPE, b"body"), 0.0, fail)
    assert (await answers.once(Repeatable(SCOPE, b"body"), 0.0, work))[1] is False


async def test_what_failed_in_part_may_be_tried_again() -> None:
    async def fail_in_part() -> Response:
        return Response("some", 207)

    answers, work = Answers(), Work()
    assert (await answers.once(Repeatable(SCOPE, b"body"), 0.0, fail_in_part))[0].body == b"some"
    assert (await answers.once(Repeatable(SCOPE, b"body"), 0.0, work))[0].body == b"1"


def test_the_batches_of_a_request_have_ids_of_their_own_and_the_same_ones_each_time() -> None:
    def ids(scope: tuple[str, str, str], body: bytes) -> list[int]:
        request = Repeatable(scope, body)
        return [request.next_producer_id(partition) for partition in (0, 0, 1)]

    known = ids(SCOPE, b"body")
    assert known == ids(SCOPE, b"body")
    others = [
        ids(("bob", "orders", "key-1"), b"body"),
        ids(SCOPE, b"another"),
        ids(("alice", "orderskey-", "1"), b"body"),
    ]
    assert len({*known, *(each for other in others for each in other)}) == 12
    assert all(DERIVED_ID_FIRST <= each < 1 << 63 for each in known)


async def test_keys_are_forgotten_in_time_and_when_there_are_too_many() -> None:
    answers, work = Answers(), Work()
    await answers.once(Repeatable(SCOPE, b"body"), 0.0, work)
    assert (await answers.once(Repeatable(SCOPE, b"body"), KEPT_S + 1, work))[1] is False
    for number in range(KEYS_MAX):
        await answers.once(Repeatable(("", "", str(number)), b"body"), KEPT_S + 1, work)
    assert (await answers.once(Repeatable(SCOPE, b"body"), KEPT_S + 1, work))[1] is False
