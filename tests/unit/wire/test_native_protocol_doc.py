"""The specification names every operation and every field, with its type and default, as the code has them."""

import re
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from flymq.wire.native.codec import decode_request
from flymq.wire.native.framing import FrameCutter
from flymq.wire.native.messages.fields import Message, Part
from flymq.wire.native.messages.records import Produce
from flymq.wire.native.operations import OPERATIONS, UNASKED

DOC = Path(__file__).parents[3] / "docs" / "formats" / "native-protocol.md"
_RANGES = {
    (0, 1 << 16): "u16",
    (0, 1 << 32): "u32",
    (0, 1 << 31): "u31",
    (0, 1 << 63): "u63",
    (-1, 1 << 31): "u31 or -1",
    (-1, 1 << 63): "u63 or -1",
    (-1, 1 << 15): "u15 or -1",
    (-(1 << 31), 1 << 31): "i32",
    (-(1 << 63), 1 << 63): "i64",
}


def type_name(hint: Any) -> str:
    """Return the type as the specification writes it."""
    if get_origin(hint) is Annotated:
        kind, limits = get_args(hint)[:2]
        if limits.max_length is not None:
            return type_name(kind)
        return _RANGES[limits.ge, limits.lt if limits.lt is not None else limits.le + 1]
    if get_origin(hint) in (Union, UnionType):
        names = [type_name(option) for option in get_args(hint) if option is not NoneType]
        return " or ".join([*names, "null"] if NoneType in get_args(hint) else names)
    if get_origin(hint) is list:
        return f"[{type_name(get_args(hint)[0])}]"
    if get_origin(hint) is tuple:
        return f"({', '.join(map(type_name, get_args(hint)))})"
    if get_origin(hint) is dict:
        return f"{{{': '.join(map(type_name, get_args(hint)))}}}"
    if issubclass(hint, Enum):
        return " or ".join(str(member.value) for member in hint)
    return {memoryview: "bin"}.get(hint, hint.__name__)


def default_name(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default_factory is not msgspec.NODEFAULT:
        return {list: "[]", dict: "{}"}[field.default_factory]
    if isinstance(field.default, memoryview):
        return "empty"
    if isinstance(field.default, str):
        return f'"{field.default}"'
    if field.default is None or isinstance(field.default, bool):
        return {None: "null", True: "true", False: "false"}[field.default]
    return str(int(field.default))


def rows_of(message: type[Message | Part]) -> set[tuple[str, str, str]]:
    hints = get_type_hints(message, include_extras=True)
    return {
        (field.name, type_name(hints[field.name]), default_name(field))
        for field in msgspec.structs.fields(message)
        if not (field.name == "id" and issubclass(message, Message))
    }


def documented() -> dict[str, set[tuple[str, str, str]]]:
    """Map each heading of the specification, or "heading: response", to the first three columns of its tables."""
    found: dict[str, set[tuple[str, str, str]]] = {}
    title = ""
    for line in DOC.read_text().splitlines():
        if heading := re.match(r"#{2,4} (.+)", line):
            title = heading[1]
            found[title] = set()
        elif line == "**Response**" or line.startswith("**Response**:"):
            title += ": response"
            found[title] = set()
        elif cells := re.match(r"\| `(\w+)` \| (.+?) \| (.+?) \| .+ \|$", line):
            found[title].add((cells[1], cells[2].strip("`"), cells[3].strip("`")))
    return found


def parts_of(message: type[Message | Part]) -> set[type[Part]]:
    """Return the maps used inside a message, at any depth."""
    found: set[type[Part]] = set()
    pending: list[Any] = list(get_type_hints(message).values())
    while pending:
        hint = pending.pop()
        pending.extend(get_args(hint))
        if isinstance(hint, type) and issubclass(hint, Part) and hint not in found:
            found.add(hint)
            pending.extend(get_type_hints(hint).values())
    return found


DOCUMENTED = documented()
MESSAGES = [message for operation in OPERATIONS.values() for message in operation if message] + list(UNASKED.values())
PARTS = sorted({part for message in MESSAGES for part in parts_of(message)}, key=lambda part: part.__name__)


@pytest.mark.parametrize("opcode", OPERATIONS, ids=lambda opcode: opcode.name)
def test_every_operation_is_documented_with_all_its_fields(opcode: Any) -> None:
    title = f"{opcode.name} 0x{opcode:02X}"
    request, answer = OPERATIONS[opcode]
    assert DOCUMENTED[title] == rows_of(request)
    assert (f"{title}: response" in DOCUMENTED) == (answer is not None)
    if answer is not None:
        assert DOCUMENTED[f"{title}: response"] == rows_of(answer)


@pytest.mark.parametrize("opcode", UNASKED, ids=lambda opcode: opcode.name)
def test_every_frame_nobody_asked_for_is_documented_with_all_its_fields(opcode: Any) -> None:
    assert DOCUMENTED[f"{opcode.name} 0x{opcode:02X}"] == rows_of(UNASKED[opcode])


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_map_inside_a_message_is_documented_with_all_its_fields(part: type[Part]) -> None:
    assert DOCUMENTED[part.__name__] == rows_of(part)


def test_the_example_in_bytes_is_a_request() -> None:
    [example] = re.findall(r"^```\n(FB 01 01 .*?)```", DOC.read_text(), re.MULTILINE | re.DOTALL)
    in_hex = re.findall(r"\b[0-9A-F]{2}\b", re.sub(r" {3,}[^0-9A-F\n].*| {4,}a map.*", "", example))
    [(opcode, payload)] = FrameCutter().feed(bytes.fromhex("".join(in_hex)))
    assert decode_request(opcode, payload) == Produce(topic="logs", value=memoryview(b"hi"))


def test_the_overview_lists_every_opcode() -> None:
    listed = set(re.findall(r"^\| (0x[0-9A-F]{2}) \| (\w+) \|", DOC.read_text(), re.MULTILINE))
    assert listed == {(f"0x{opcode:02X}", opcode.name) for opcode in [*OPERATIONS, *UNASKED]}
