"""Encode and decode messages. Invalid input always raises a FlyMQError, never anything else."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError, Struct, ValidationError
from msgspec.msgpack import Decoder, Encoder

from flymq.model.errors import (
    BrokenFrame,
    FlyMQError,
    InvalidRequest,
    RequestTooLarge,
    UnknownBrokerError,
    UnknownOpcode,
    UnknownRetriableError,
    all_errors,
)
from flymq.wire.native.framing import HEADER, HEADER_SIZE, MAGIC, VERSION
from flymq.wire.native.messages.fields import U32, Failure, Message
from flymq.wire.native.messages.session import ErrorAnswer
from flymq.wire.native.opcodes import ANSWER_BIT, Opcode, answer_to
from flymq.wire.native.operations import OPCODE_OF, OPERATIONS, UNASKED

_ENCODER = Encoder()
_REQUESTS: dict[int, Decoder[Any]] = {opcode: Decoder(operation.request) for opcode, operation in OPERATIONS.items()}
_ANSWERS: dict[int, Decoder[Any]] = {
    **{answer_to(opcode): Decoder(operation.answer) for opcode, operation in OPERATIONS.items() if operation.answer},
    **{opcode: Decoder(message) for opcode, message in UNASKED.items()},
}
_ERRORS = all_errors()


_SMALL_BYTES = 512 << 10  # every request may be so large
_PEEKED_BYTES_MAX = 64 << 10
_ID_BYTES = {**dict.fromkeys(range(0x80), 4), 0xCC: 5, 0xCD: 6, 0xCE: 8}
"""Size of the key `id` and its number, by the first byte of the number."""

CONTROL_BYTES_MAX = 4 << 20
"""Maximum size of a request without records."""
_BYTES_MAX_OF: dict[int, int] = {
    Opcode.PRODUCE: 1 << 32,
    Opcode.PRODUCE_BATCH: 1 << 32,
    # Their arrays are nested, so the size of one does not limit the others.
    Opcode.SUBSCRIBE: 512 << 10,
    Opcode.SYNC: 512 << 10,
}


class _IdOnly(Struct):
    id: U32 = 0


_ID = Decoder(_IdOnly)


def encode_frame(opcode: int, message: Message) -> bytearray:
    """Return the frame of `message`."""
    frame = bytearray(HEADER_SIZE)
    _ENCODER.encode_into(message, frame, HEADER_SIZE)
    HEADER.pack_into(frame, 0, MAGIC, VERSION, opcode, len(frame) - HEADER_SIZE)
    return frame


def encode_request(request: Message) -> bytearray:
    return encode_frame(OPCODE_OF[type(request)], request)


def encode_answer(opcode: int, answer: Message) -> bytearray:
    """Return the response frame for a request with this opcode."""
    return encode_frame(opcode | ANSWER_BIT, answer)


def encode_error(error: FlyMQError, request_id: int = 0) -> bytearray:
    """Return the error frame of a failed request, or of a connection that is being closed."""
    answer = ErrorAnswer(
        id=request_id, code=error.code, message=error.message, hint=error.hint, retriable=error.retriable
    )
    return encode_frame(Opcode.ERROR, answer)


def decode_request(opcode: int, payload: bytes | bytearray | memoryview) -> Message:
    """Return the request. Its `Bin` fields are views of `payload`."""
    decoder = _REQUESTS.get(opcode)
    if decoder is None:
        raise UnknownOpcode(f"opcode {opcode:#04x} is not a request of this protocol")
    if len(payload) > _SMALL_BYTES:
        _check_size(opcode, len(payload))
    try:
        request: Message = decoder.decode(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"{Opcode(opcode).name}: {_reason(error)}") from None
    return request


def _check_size(opcode: int, size: int) -> None:
    bytes_max = _BYTES_MAX_OF.get(opcode, CONTROL_BYTES_MAX)
    if size > bytes_max:
        raise RequestTooLarge(
            f"{Opcode(opcode).name} has {size} bytes, the limit is {bytes_max}", hint="Send several smaller requests."
        )


def _has_id_first(payload: bytes | bytearray | memoryview) -> bool:
    return 0x80 < payload[0] < 0x90 and payload[1:4] == b"\xa2id" and payload[4] in _ID_BYTES


def decode_answer(opcode: int, payload: bytes | bytearray | memoryview) -> Message:
    """Return a message of the broker: a response, an `ErrorAnswer` or a delivery. `Bin` fields are views."""
    decoder = _ANSWERS.get(opcode)
    if decoder is None:
        raise BrokenFrame(f"the broker sent a frame with the unknown opcode {opcode:#04x}")
    try:
        answer: Message = decoder.decode(payload)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenFrame(f"the response with opcode {opcode:#04x} cannot be decoded: {_reason(error)}") from None
    return answer


def peek_id(payload: bytes | bytearray | memoryview) -> int:
    """Return the id of a request that could not be decoded, or 0, so that the error can be matched to its request."""
    if len(payload) > _PEEKED_BYTES_MAX:  # most clients send the id first
        payload = b"\x81" + bytes(payload[1 : 1 + _ID_BYTES[payload[4]]]) if _has_id_first(payload) else b""
    try:
        return _ID.decode(payload).id
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return 0


def error_of(failure: Failure | ErrorAnswer) -> FlyMQError:
    """Return the error of an error frame. A newer broker may send codes that are unknown here."""
    known = _ERRORS.get(failure.code)
    if known is not None:
        return known(failure.message, hint=failure.hint)
    unknown = UnknownRetriableError if failure.retriable else UnknownBrokerError
    return unknown(f"{failure.code}: {failure.message}", hint=failure.hint)


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error).replace("`", "")
    if isinstance(error, RecursionError):
        return "values are nested too deeply"
    return f"invalid MessagePack: {error}"
