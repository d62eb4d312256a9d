"""The body of a request, as far as it is allowed to be: in size, unpacked too, in time, and in memory."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.requests import ClientDisconnect, Request

from flymq.gateways.budget import BufferBudget
from flymq.model.errors import BodyTooSlow, ConnectionLost, InvalidRequest, RequestTooLarge, UnsupportedMediaType

JSON = "application/json"
NDJSON = "application/x-ndjson"
_BLOCK_BYTES = 256 << 10  # lines worked on at once: about 2 ms
_TOO_LARGE = "Send less at once, or raise `rest.body_bytes_max`."
_GZIP_WINDOW = 31  # what zlib calls a window of 15 bits with gzip's header


def media_type(request: Request) -> str:
    return request.headers.get("content-type", JSON).partition(";")[0].strip().lower()


async def read_body(request: Request, budget: BufferBudget, *, bytes_max: int, timeout_s: float) -> bytes:
    """Return the whole body."""
    pieces: list[bytes] = []
    async with aclosing(body_pieces(request, budget, bytes_max=bytes_max, timeout_s=timeout_s)) as stream:
        async for piece in stream:
            pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def body_blocks(
    request: Request, budget: BufferBudget, *, bytes_max: int, timeout_s: float
) -> AsyncIterator[bytes]:
    """Yield blocks of whole lines, each small enough that working on it does not hold up the loop."""
    pending = bytearray()
    async with aclosing(body_pieces(request, budget, bytes_max=bytes_max, timeout_s=timeout_s)) as stream:
        async for piece in stream:
            pending += piece
            while (end := _end_of_lines(pending)) > 0:
                yield bytes(pending[:end])
                del pending[:end]
    if pending:
        yield bytes(pending)


def _end_of_lines(pending: bytearray) -> int:
    """Return where a block of lines ends; 0 while there is none yet."""
    if len(pending) < _BLOCK_BYTES:
        return 0
    return (pending.rfind(b"\n", 0, _BLOCK_BYTES) + 1) or (pending.find(b"\n", _BLOCK_BYTES) + 1)


async def body_pieces(
    request: Request, budget: BufferBudget, *, bytes_max: int, timeout_s: float
) -> AsyncGenerator[bytes]:
    """Yield the body as it comes, unpacked. Its bytes count as held until the caller is done with all of it."""
    _check_length(request, bytes_max)
    unpack = _unpacker(request)
    stream = request.stream()
    ends_at = asyncio.get_running_loop().time() + timeout_s
    held = 0
    try:
        while (piece := await _next(stream, ends_at)) is not None:
            data = piece if unpack is None else unpack.decompress(piece, bytes_max - held + 1)
            held += len(data)
            budget.change(len(data))
            if held > bytes_max:
                raise RequestTooLarge(f"a body has at most {bytes_max} bytes", hint=_TOO_LARGE)
            if data:
                yield data
        if unpack is not None and not unpack.eof:
            raise InvalidRequest("the gzip stream ends too early")
    except zlib.error:
        raise InvalidRequest("the body is not gzip, as its Content-Encoding says") from None
    finally:
        budget.change(-held)


async def _next(stream: AsyncIterator[bytes], ends_at: float) -> bytes | None:
    """Return the next piece, None after the last."""
    try:
        async with asyncio.timeout_at(ends_at):
            return await anext(stream)
    except StopAsyncIteration:
        return None
    except TimeoutError:
        raise BodyTooSlow from None
    except ClientDisconnect:
        raise ConnectionLost("the client went away within its request") from None


def _check_length(request: Request, bytes_max: int) -> None:
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > bytes_max:
        raise RequestTooLarge(f"a body has at most {bytes_max} bytes, not {length}", hint=_TOO_LARGE)


def _unpacker(request: Request) -> zlib._Decompress | None:
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding == "gzip":
        return zlib.decompressobj(_GZIP_WINDOW)
    if encoding != "identity":
        raise UnsupportedMediaType(f"a body encoded as {encoding!r} is not read here")
    return None
