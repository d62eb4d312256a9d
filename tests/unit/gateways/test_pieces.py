"""A request with many elements is served in small pieces, and its answer is that of the whole."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.handlers import HANDLERS
from flymq.gateways.kafka.large_requests import split_of
from flymq.gateways.native.large_requests import SPLITS as NATIVE_SPLITS
from flymq.gateways.pieces import ELEMENTS_AT_ONCE, Split, pieces, serve_in_pieces
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import _ELEMENTS_MAX_OF, messages_of
from flymq.wire.native.opcodes import Opcode
from flymq.wire.native.operations import OPERATIONS


class Leaf(msgspec.Struct):
    topic: str
    numbers: list[int]


class Group(msgspec.Struct):
    name: str
    topics: list[Leaf] | None = None


class Request(msgspec.Struct):
    groups: list[Group] = []  # msgspec copies it


def weight(groups: list[Group]) -> int:
    return sum(len(leaf.numbers) for group in groups for leaf in group.topics or ())


leaves = st.builds(Leaf, st.text(max_size=2), st.integers(0, 350).map(lambda n: list(range(n))))
groups_of = st.builds(Group, st.text(max_size=2), st.none() | st.lists(leaves, max_size=5))
SPLIT = Split(("groups", "topics", "numbers"), ("groups", "topics", "numbers"))


@given(st.lists(groups_of, max_size=5))
def test_the_answer_of_the_pieces_is_that_of_the_whole(groups: list[Group]) -> None:
    served: list[int] = []

    def serve(request: Request) -> Any:
        served.append(weight(request.groups))
        answer = Request(
            [Group(g.name, [Leaf(t.topic, list(t.numbers)) for t in g.topics or ()]) for g in request.groups]
        )
        if len(served) % 3 == 0:
            done: asyncio.Future[Request] = asyncio.get_running_loop().create_future()
            done.set_result(answer)
            return AnswerLater(done, lambda result: result)
        return answer if len(served) % 3 == 1 else _later(answer)

    async def _later(answer: Request) -> Request:
        return answer

    whole = asyncio.run(serve_in_pieces(SPLIT, Request(groups), serve))
    assert sum(served) == weight(groups)
    assert all(count <= ELEMENTS_AT_ONCE for count in served)
    expected = Request([Group(g.name, g.topics or []) for g in groups])
    assert (whole or Request()) == expected


@given(st.lists(leaves, max_size=20))
def test_a_piece_is_small(items: list[Leaf]) -> None:
    for part, _ in pieces(items, ["numbers"]):
        assert sum(len(leaf.numbers) + 1 for leaf in part) <= ELEMENTS_AT_ONCE + 1


@pytest.mark.parametrize(("count", "is_needed"), [(0, False), (ELEMENTS_AT_ONCE, False), (ELEMENTS_AT_ONCE + 1, True)])
def test_a_small_request_is_served_at_once(count: int, is_needed: bool) -> None:
    flat = Split(("numbers",), ("numbers",))
    assert flat.is_needed(Leaf("", list(range(count)))) is is_needed
    nested = Split(("topics", "numbers"), ("topics", "numbers"))
    assert nested.is_needed(Group("", [Leaf("", list(range(count)))])) is is_needed
    assert nested.is_needed(Group("", [Leaf("", []), Leaf("", list(range(count)))])) is is_needed
    assert not nested.is_needed(Group("", None))


# --- no request is forgotten ----------------------------------------------------------------------------------------

# Their arrays become sets or dicts, or are read up to a page: a hundred thousand elements take a few milliseconds.
CHEAP = {
    Api.LIST_GROUPS,
    Api.LIST_TRANSACTIONS,
    Api.DESCRIBE_LOG_DIRS,
    Api.DESCRIBE_TOPIC_PARTITIONS,
    Api.LIST_CONFIG_RESOURCES,
}


def has_arrays(request: type[msgspec.Struct]) -> bool:
    return any("list[" in str(field.type) for field in msgspec.structs.fields(request))


def request_of(api: int) -> type[msgspec.Struct]:
    name = "".join(part.capitalize() for part in Api(api).name.split("_")) + "Request"
    found: type[msgspec.Struct] = getattr(messages_of(api), name)
    return found


@pytest.mark.parametrize("api", sorted(HANDLERS), ids=lambda api: Api(api).name)
def test_a_kafka_request_with_arrays_is_split_or_limited(api: int) -> None:
    request = request_of(api)
    if not has_arrays(request):
        return
    split = split_of(api, CODECS[Api(api)].last)
    assert split is not None or api in _ELEMENTS_MAX_OF or api in CHEAP, Api(api).name
    if split is not None:
        assert hasattr(request(), split.asked[0])
        assert hasattr(messages_of(api).RESPONSE(), split.answered[0])
        assert len(split.asked) == len(split.answered)


@pytest.mark.parametrize("opcode", sorted(OPERATIONS), ids=str)
def test_an_array_in_a_native_request_has_a_maximum_length(opcode: Opcode) -> None:
    request = OPERATIONS[opcode].request
    for field in msgspec.structs.fields(request):
        text = str(field.type)
        if "list[" in text or "dict[" in text:
            assert "max_length" in text, f"{request.__name__}.{field.name}"
    if opcode in NATIVE_SPLITS:
        assert NATIVE_SPLITS[opcode].asked[0] in request.__struct_fields__
