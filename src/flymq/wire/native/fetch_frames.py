"""Frames whose batches are sent from elsewhere, without passing through the encoder.

A fetch response is small fields around large binary values in the page cache. `encode_around` encodes everything but
those values, in pieces; the sender sends each body after its piece with `sendmsg` or `sendfile`:

    piece 0 | body 0 | piece 1 | body 1 | …

It relies on `partitions` being the last field of its message and `batches` the last one of each partition. Readers do
not: the order of a map has no meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from msgspec import Raw
from msgspec.msgpack import Encoder

from flymq.wire.native.framing import frame_header
from flymq.wire.native.messages.peers import ReplicaFetchAnswer, ReplicaNews
from flymq.wire.native.messages.push import Deliver
from flymq.wire.native.messages.records import FetchAnswer, FetchedPartition
from flymq.wire.native.opcodes import Opcode, answer_to

_ENCODER = Encoder()
_BIN32 = Struct(">BI")
_ARRAY32 = Struct(">BI")
_EMPTY_ARRAY = b"\x90"

WithBatches = FetchAnswer | Deliver | ReplicaFetchAnswer
_OPCODES: dict[type[WithBatches], int] = {
    FetchAnswer: answer_to(Opcode.FETCH),
    ReplicaFetchAnswer: answer_to(Opcode.REPLICA_FETCH),
    Deliver: Opcode.DELIVER,
}


def encode_around(message: WithBatches, lengths: Sequence[int]) -> list[bytes]:
    """Return the pieces before each partition's body; the body of partition `i` has `lengths[i]` bytes.

    The partitions' own `batches` are overwritten. Without partitions there is one piece, the whole frame.
    """
    partitions: Sequence[FetchedPartition | ReplicaNews] = message.partitions
    assert len(partitions) == len(lengths)
    pieces = [_encode_up_to_body(partition, length) for partition, length in zip(partitions, lengths, strict=True)]
    head = _encode_up_to_partitions(message)
    if not pieces:
        pieces = [b""]
    payload_length = len(head) + sum(map(len, pieces)) + sum(lengths)
    pieces[0] = frame_header(_OPCODES[type(message)], payload_length) + head + pieces[0]
    return pieces


def _encode_up_to_body(partition: FetchedPartition | ReplicaNews, length: int) -> bytes:
    body: Any = Raw(_BIN32.pack(0xC6, length))  # raw bytes: the header of a binary value whose content follows
    partition.batches = body
    return _ENCODER.encode(partition)


def _encode_up_to_partitions(message: WithBatches) -> bytes:
    partitions: Any = message.partitions
    message.partitions = []
    encoded = _ENCODER.encode(message)
    message.partitions = partitions
    assert encoded.endswith(_EMPTY_ARRAY)
    return encoded[:-1] + _ARRAY32.pack(0xDD, len(partitions))
