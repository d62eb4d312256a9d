"""Request bodies, with limits of size, also decompressed, of time and of memory."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Iterator

from flymq.gateways.rest.schema.operations import Call
from flymq.model.errors import BodyTooSlow, ConnectionLost, InvalidRequest, RequestTooLarge, UnsupportedMediaType

JSON = "application/json"
NDJSON = "application/x-ndjson"
_BLOCK_BYTES = 256 << 10  # per block of lines: about 2 ms of work
_TOO_LARGE = "Send smaller requests, or increase `rest.body_bytes_max`."
_BLOCK_LINES_MAX = 500  # the same for short lines
OBJECTS_MAX = 50_000
"""Maximum number of objects that are decoded at once: about 20 ms of work."""

_UNRESERVED_BYTES_MAX = 64 << 10  # smaller bodies reserve no memory and never wait for it
_GZIP_WINDOW = 31  # zlib: a window of 15 bits, with a gzip header


def media_type(call: Call) -> str:
    """Return the media type of the body; empty if it is not set."""
    return call.header(b"content-type").partition(";")[0].strip().lower()


def wrong_media_type(call: Call, *expected: str) -> UnsupportedMediaType:
    """Return the error for a missing or unsupported Content-Type."""
    given = media_type(call)
    wanted = " or ".join(map(repr, expected))
    if not given:
        return UnsupportedMediaType(f"the request has no Content-Type; send {wanted}")
    return UnsupportedMediaType(f"the content type is {given!r}, not {wanted}")


class Body:
    """The body of one request, in pieces. A large one is received once its memory is reserved (see budget.py)."""

    def __init__(self, call: Call) -> None:
        self._bytes_max = call.rest.settings.body_bytes_max
        self._bytes_wanted = _check_length(call, self._bytes_max)
        self._receive = call.request.receive
        self._share = call.memory
        self._unpack = _unpacker(call)
        if self._unpack is not None:
            self._bytes_wanted = self._bytes_max
        self._received = 0
        self._is_complete = False

    async def next(self) -> bytes | None:
        """Return the next piece, decompressed; None after the last."""
        if self._is_complete:
            return None
        if self._received > _UNRESERVED_BYTES_MAX and not self._share.reserved:
            await self._share.wait_for(self._bytes_wanted)
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ConnectionLost("the client has disconnected within its request")
        self._is_complete = not message.get("more_body", False)
        data: bytes = message.get("body", b"")
        if self._unpack is not None:
            data = self._unpacked(self._unpack, data)
        self._received += len(data)
        if self._received > self._bytes_max:
            raise RequestTooLarge(f"the body exceeds the limit of {self._bytes_max} bytes", hint=_TOO_LARGE)
        return data

    def _unpacked(self, unpack: zlib._Decompress, data: bytes) -> bytes:
        try:
            data = unpack.decompress(data, self._bytes_max - self._received + 1)
        except zlib.error:
            raise InvalidRequest("the body is not gzip, but its Content-Encoding is") from None
        if self._is_complete and not unpack.eof and self._received + len(data) <= self._bytes_max:
            raise InvalidRequest("the gzip stream is truncated")
        return data


async def read_body(call: Call) -> bytes:
    """Return the whole body."""
    body = Body(call)
    pieces: list[bytes] = []
    try:
        async with asyncio.timeout(call.rest.settings.body_timeout_s):
            while (piece := await body.next()) is not None:
                pieces.append(piece)
    except TimeoutError:
        raise BodyTooSlow from None
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def body_blocks(call: Call) -> AsyncGenerator[bytes]:
    """Yield blocks of whole lines, each small enough not to block the event loop."""
    body = Body(call)
    ends_at = asyncio.get_running_loop().time() + call.rest.settings.body_timeout_s
    pending = bytearray()
    while (piece := await _next(body, ends_at)) is not None:
        pending += piece
        while (end := _end_of_lines(pending)) > 0:
            yield bytes(pending[:end])
            del pending[:end]
    if pending:
        for block in line_blocks(bytes(pending)):
            yield block


def check_objects(body: bytes) -> None:
    """Refuse JSON with too many objects before it is decoded, by a count that is too high rather than too low."""
    count = 0
    for start in range(0, len(body), _BLOCK_BYTES):
        count += body.count(b"{", start, start + _BLOCK_BYTES)
        if count > OBJECTS_MAX:
            raise RequestTooLarge(
                f"the JSON has more than {OBJECTS_MAX} objects", hint="Send several requests, or NDJSON: one line each."
            )


def line_blocks(body: bytes) -> Iterator[bytes]:
    """Split a complete body into such blocks, deterministically."""
    start = 0
    while start < len(body):
        end = _end_of_lines(body, start) or _few_lines(body, start)
        yield body[start:end]
        start = end


async def _next(body: Body, ends_at: float) -> bytes | None:
    try:
        async with asyncio.timeout_at(ends_at):
            return await body.next()
    except TimeoutError:
        raise BodyTooSlow from None


def _end_of_lines(pending: bytes | bytearray, start: int = 0) -> int:
    """Return the end of the block of lines that begins at `start`; 0 if it is incomplete."""
    full = start + _BLOCK_BYTES
    if len(pending) < full:
        return 0
    end = (pending.rfind(b"\n", start, full) + 1) or (pending.find(b"\n", full) + 1)
    return _few_lines(pending, start, end)


def _few_lines(lines: bytes | bytearray, start: int, end: int | None = None) -> int:
    """Return `end`, or the end of the last line that is allowed in one block."""
    end = len(lines) if end is None else end
    if lines.count(b"\n", start, end) > _BLOCK_LINES_MAX:
        end -= len(lines[start:end].split(b"\n", _BLOCK_LINES_MAX)[-1])
    return end


def _check_length(call: Call, bytes_max: int) -> int:
    """Return the size of the body; the maximum if it is chunked."""
    length = call.header(b"content-length", "")
    if not length.isdecimal():
        return bytes_max
    if int(length) > bytes_max:
        raise RequestTooLarge(f"the body has {length} bytes, the limit is {bytes_max}", hint=_TOO_LARGE)
    return int(length)


def _unpacker(call: Call) -> zlib._Decompress | None:
    encoding = call.header(b"content-encoding", "identity").strip().lower()
    if encoding == "gzip":
        return zlib.decompressobj(_GZIP_WINDOW)
    if encoding != "identity":
        raise UnsupportedMediaType(f"the content encoding {encoding!r} is not supported")
    return None
