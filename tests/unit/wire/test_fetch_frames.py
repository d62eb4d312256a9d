"""A fetch answer whose batches are sent from the log is the same answer."""

from itertools import chain, zip_longest

from hypothesis import given
from hypothesis import strategies as st

from flymq.wire.native.codec import decode_answer
from flymq.wire.native.fetch_frames import encode_around
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Failure
from flymq.wire.native.messages.push import Deliver
from flymq.wire.native.messages.records import FetchAnswer, FetchedPartition

bodies = st.lists(st.binary(max_size=400), max_size=20)


def partitions(of: list[bytes]) -> list[FetchedPartition]:
    return [
        FetchedPartition(
            topic=f"topic-{index}",
            partition=index,
            high_watermark=1000 * index,
            aborted=[(1, index)] if index % 3 == 0 else [],
            error=Failure(code="NOT_LEADER") if not body else None,
            batches=memoryview(body),
        )
        for index, body in enumerate(of)
    ]


def sent(message: FetchAnswer | Deliver, of: list[bytes]) -> bytes:
    pieces = encode_around(message, [len(body) for body in of])
    return b"".join(chain.from_iterable(zip_longest(pieces, of, fillvalue=b"")))


@given(bodies, st.integers(0, 2**32 - 1))
def test_pieces_and_bodies_together_are_the_fetch_answer(of: list[bytes], request_id: int) -> None:
    stream = sent(FetchAnswer(id=request_id, partitions=partitions(of)), of)
    [(opcode, payload)] = FrameCutter().feed(stream)
    assert opcode == 0x86
    assert decode_answer(opcode, payload) == FetchAnswer(id=request_id, partitions=partitions(of))


@given(bodies)
def test_pieces_and_bodies_together_are_the_delivery(of: list[bytes]) -> None:
    stream = sent(Deliver(subscription=4, partitions=partitions(of)), of)
    [(opcode, payload)] = FrameCutter().feed(stream)
    assert opcode == 0xF0
    assert decode_answer(opcode, payload) == Deliver(subscription=4, partitions=partitions(of))
