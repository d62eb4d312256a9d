"""The base classes of messages and the types of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from msgspec import Meta, Struct

from flymq.model.errors import FlyMQError

U16 = Annotated[int, Meta(ge=0, lt=1 << 16)]
U32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
I32 = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]
I64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Offset = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
PartitionIndex = Annotated[int, Meta(ge=0, lt=1 << 31)]

T = TypeVar("T")
ELEMENTS_MAX = 20_000
"""Maximum length of an array in a request: twice the partitions that a broker is made for."""
Many = Annotated[list[T], Meta(max_length=ELEMENTS_MAX)]
"""An array in a request. A longer one is refused before it is decoded."""

if TYPE_CHECKING:
    Bin: TypeAlias = bytes | bytearray | memoryview
else:
    Bin = memoryview  # decoded as a view of the frame: no copy

EMPTY = memoryview(b"")
ANY_PARTITION = -1
NO_EPOCH = -1
NO_OFFSET = -1


class Part(Struct, omit_defaults=True):
    """A map inside a message."""


class Message(Struct, kw_only=True, omit_defaults=True):
    """A whole payload. A response has the `id` of its request."""

    id: U32 = 0


class Request(Message, forbid_unknown_fields=True):
    """A request. A field it does not have is an error: a misspelled name must not be taken for a default."""


class RequestPart(Part, forbid_unknown_fields=True):
    """A map inside a request."""


class Failure(Part):
    """The error of one part of a request; other parts may have succeeded."""

    code: str
    message: str = ""
    hint: str = ""
    retriable: bool = False

    @classmethod
    def of(cls, error: FlyMQError) -> Failure:
        return cls(code=error.code, message=error.message, hint=error.hint, retriable=error.retriable)


class PartitionRef(RequestPart):
    """One partition of one topic."""

    topic: str
    partition: PartitionIndex


class TopicPartitions(Part):
    """Several partitions of one topic."""

    topic: str
    partitions: list[PartitionIndex]
