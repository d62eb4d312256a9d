"""Primitive values of Kafka's messages, read and written sequentially.

Each version of a message uses one of two encodings, which the reader or writer implements. So the generated codecs only
define the order of the fields:

                     classic                       compact ("flexible" versions)
    string, bytes    length i16 or i32, -1: null   length + 1 as unsigned varint, 0: null
    array            count i32, -1: null           count + 1 as unsigned varint, 0: null
    end of a struct  nothing                       tagged fields: count, then (tag, size, bytes) each; all varints

Numbers are big-endian and have the same size in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from struct import Struct
from typing import Any, Protocol

from flymq.model.errors import InvalidRequest, RequestTooLarge

Buffer = bytes | bytearray | memoryview


class Body(Protocol):
    """Record batches that are stored elsewhere, as in a file, and are sent from there."""

    @property
    def length(self) -> int: ...


Records = Buffer | Body

ELEMENTS_MAX = 100_000
"""Maximum number of elements in all arrays of a request: ten times the partitions that a broker is made for."""

_TAGS_MAX = 100  # tagged fields of one struct

NO_ID = bytes(16)
"""A topic id is its 16 bytes; this is the null id."""

_I16 = Struct(">h")
_I32 = Struct(">i")


class Reader:
    """Reads a message in the classic encoding. `records` are views of the message, everything else is copied.

    On the hot path of every request, so the sizes are read inline, without a call for each.
    """

    __slots__ = ("_at", "_buffer", "_elements_left", "_end")

    def __init__(self, buffer: memoryview, at: int = 0, elements_max: int = ELEMENTS_MAX) -> None:
        self._buffer = buffer
        self._at = at
        self._end = len(buffer)
        self._elements_left = elements_max

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        """Read several values of fixed size at once. Beyond the end it raises `struct.error`."""
        at = self._at
        self._at = at + form.size
        return form.unpack_from(self._buffer, at)

    def take(self, size: int) -> memoryview:
        at = self._at
        end = at + size
        if not at <= end <= self._end:
            raise InvalidRequest(f"a value of {size} bytes where {self._end - at} are left")
        self._at = end
        return self._buffer[at:end]

    def string(self) -> str:
        at = self._at + 2
        end = at + _I16.unpack_from(self._buffer, self._at)[0]
        if not at <= end <= self._end:
            raise InvalidRequest(f"a string of {end - at} bytes where {self._end - at} are left")
        self._at = end
        return str(self._buffer[at:end], "utf-8")

    def nullable_string(self) -> str | None:
        if _I16.unpack_from(self._buffer, self._at)[0] >= 0:
            return self.string()
        self._at += 2
        return None

    def octets(self) -> bytes:
        return bytes(self.take(self._size()))

    def nullable_octets(self) -> bytes | None:
        size = self._size()
        return None if size < 0 else bytes(self.take(size))

    def records(self) -> memoryview | None:
        size = self._size()
        return None if size < 0 else self.take(size)

    def count(self) -> int:
        """Read an array length. One that is too large is rejected before use: an element has at least one byte."""
        count = self._size()
        if not 0 <= count <= self._end - self._at:
            raise InvalidRequest(f"an array of {count} elements where {self._end - self._at} bytes are left")
        self._elements_left -= count
        if self._elements_left < 0:
            raise _too_many(count)
        return count

    def nullable_count(self) -> int:
        """Read a nullable array length; -1 for null."""
        count = self._size()
        if count > self._end - self._at:
            raise InvalidRequest(f"an array of {count} elements where {self._end - self._at} bytes are left")
        if count > 0:
            self._elements_left -= count
            if self._elements_left < 0:
                raise _too_many(count)
        return count

    def int32s(self) -> list[int]:
        return self._int32s(self.count())

    def nullable_int32s(self) -> list[int] | None:
        count = self.nullable_count()
        return None if count < 0 else self._int32s(count)

    def is_present(self) -> bool:
        """Read whether a nullable struct is present."""
        return self.take(1)[0] == 1

    def end(self) -> None:
        """Read the end of a struct, skipping unknown tagged fields of newer clients."""

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """Read the end of a struct and return its tagged fields."""
        return iter(())

    def _int32s(self, count: int) -> list[int]:
        return list(self.unpack(Struct(f">{count}i")))

    def _size(self) -> int:
        at = self._at
        self._at = at + 4
        size: int = _I32.unpack_from(self._buffer, at)[0]
        return size


def _too_many(count: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"an array of {count} elements, which makes too many for one request", hint="Send several smaller requests."
    )


class CompactReader(Reader):
    """Reads a message in the compact encoding."""

    __slots__ = ()

    def varint(self) -> int:
        byte = self._buffer[self._at]
        self._at += 1
        if byte < 0x80:
            return byte
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            byte = self._buffer[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise InvalidRequest("a varint of more than five bytes")

    def string(self) -> str:
        return str(self.take(self.varint() - 1), "utf-8")

    def nullable_string(self) -> str | None:
        size = self.varint() - 1
        return None if size < 0 else str(self.take(size), "utf-8")

    def _size(self) -> int:
        return self.varint() - 1

    def end(self) -> None:
        at = self._at
        if not self._buffer[at]:  # no tags, as nearly always
            self._at = at + 1
            return
        for _ in range(self._tag_count()):
            self.varint()
            self.take(self.varint())

    def _tag_count(self) -> int:
        count = self.varint()
        if count > _TAGS_MAX:
            raise InvalidRequest(f"{count} tagged fields in one struct")
        return count

    def tags(self) -> Iterator[tuple[int, Reader]]:
        at = self._at
        if not self._buffer[at]:
            self._at = at + 1
            return iter(())
        return self._some_tags()

    def _some_tags(self) -> Iterator[tuple[int, Reader]]:
        for _ in range(self._tag_count()):
            tag = self.varint()
            yield tag, CompactReader(self.take(self.varint()), elements_max=self._elements_left)


class Writer(bytearray):
    """Writes a message in the classic encoding. Bodies are not copied, only their positions are kept: see `pieces`."""

    __slots__ = ("bodies",)

    def __init__(self, room: int = 0) -> None:
        super().__init__(room)
        self.bodies: list[tuple[int, Body]] = []

    def string(self, value: str) -> None:
        raw = value.encode()
        self += _I16.pack(len(raw)) + raw

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self += b"\xff\xff"
        else:
            self.string(value)

    def octets(self, value: Buffer) -> None:
        self.amount(value)
        self += value

    def nullable_octets(self, value: Buffer | None) -> None:
        if self.nullable_amount(value):
            self += value  # type: ignore[arg-type]  # not None, as it has a length

    def records(self, value: Records | None) -> None:
        if value is None or isinstance(value, (bytes, bytearray, memoryview)):
            self.nullable_octets(value)
        else:
            self.size(value.length)
            self.bodies.append((len(self), value))

    def size(self, size: int) -> None:
        """Write a length in bytes."""
        self += _I32.pack(size)

    def pieces(self) -> list[Buffer | Body]:
        """Return the pieces to send: the written bytes with the bodies between them."""
        if not self.bodies:
            return [self]
        pieces: list[Buffer | Body] = []
        whole, start = memoryview(self), 0
        for position, body in self.bodies:
            pieces += (whole[start:position], body)
            start = position
        pieces.append(whole[start:])
        return pieces

    def amount(self, values: Sized) -> None:
        """Write a length or count."""
        self += _I32.pack(len(values))

    def nullable_amount(self, values: Sized | None) -> int:
        """Write and return the length of a nullable array; 0 for null."""
        count = -1 if values is None else len(values)
        self += _I32.pack(count)
        return max(0, count)

    def int32s(self, values: list[int]) -> None:
        self.amount(values)
        if values:
            # Nearly always one: a replica of a partition. Metadata has three such arrays for each.
            self += _I32.pack(values[0]) if len(values) == 1 else Struct(f">{len(values)}i").pack(*values)

    def nullable_int32s(self, values: list[int] | None) -> None:
        if self.nullable_amount(values):
            assert values is not None
            self += Struct(f">{len(values)}i").pack(*values)

    def presence(self, value: object) -> None:
        """Write whether a nullable struct follows."""
        self += b"\xff" if value is None else b"\x01"

    def end(self) -> None:
        """Write the end of a struct without tagged fields."""

    def tags(self, tagged: Mapping[int, Writer]) -> None:
        """Write the end of a struct; only flexible versions have tagged fields."""

    def inner(self) -> Writer:
        """Return an empty writer with the same encoding, for a tagged field."""
        return type(self)()


class CompactWriter(Writer):
    """Writes a message in the compact encoding."""

    __slots__ = ()

    def varint(self, value: int) -> None:
        while value >= 0x80:
            self.append(value & 0x7F | 0x80)
            value >>= 7
        self.append(value)

    def string(self, value: str) -> None:
        raw = value.encode()
        self.varint(len(raw) + 1)
        self += raw

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self += b"\0"
        else:
            self.string(value)

    def size(self, size: int) -> None:
        self.varint(size + 1)

    def amount(self, values: Sized) -> None:
        self.varint(len(values) + 1)

    def nullable_amount(self, values: Sized | None) -> int:
        count = -1 if values is None else len(values)
        self.varint(count + 1)
        return max(0, count)

    def end(self) -> None:
        self += b"\0"

    def tags(self, tagged: Mapping[int, Writer]) -> None:
        self.varint(len(tagged))
        for tag in sorted(tagged):
            self.varint(tag)
            self.varint(len(tagged[tag]))
            self += tagged[tag]
