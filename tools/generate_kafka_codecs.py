"""Write src/flymq/wire/kafka/messages from the field tables of the `kio` package.

For each request of wire/kafka/apis.py it writes one module: message classes with the fields of all versions served, a
function that reads the request and one that writes the response. What differs between versions becomes an `if`;
neighbours of fixed size are read and written at once. How values look as bytes is the matter of wire/kafka/values.py.

kio is needed only here and in tests: the modules are checked in.
"""

from __future__ import annotations

import dataclasses
import importlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from flymq.wire.kafka.apis import CODECS, Api, Versions

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "src/flymq/wire/kafka/messages"
CONFIG = ROOT / "pyproject.toml"

FIXED = {  # Kafka's type → struct code, Python type, empty value
    "bool": ("?", "bool", "False"),
    "int8": ("b", "int", "0"),
    "int16": ("h", "int", "0"),
    "uint16": ("H", "int", "0"),
    "int32": ("i", "int", "0"),
    "int64": ("q", "int", "0"),
    "error_code": ("h", "int", "0"),
    "timedelta_i32": ("i", "int", "0"),
    "timedelta_i64": ("q", "int", "0"),
    "datetime_i64": ("q", "int", "-1"),
    "uuid": ("16s", "bytes", "NO_ID"),
}
SIZED = {  # Kafka's type → method, Python type, empty value
    "string": ("string", "str", '""'),
    "bytes": ("octets", "bytes", 'b""'),
    "records": ("records", "Records", 'b""'),
}
IN_MS = ("timedelta_i32", "timedelta_i64", "datetime_i64")  # kio takes the unit off these names


@dataclasses.dataclass
class Field:
    """One field of a struct, as all versions together know it."""

    name: str
    type: str  # Kafka's name of it, or the name of a struct
    is_struct: bool
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: str | None
    versions: set[int]

    @property
    def is_fixed(self) -> bool:
        return not self.is_struct and not self.is_array and self.type in FIXED

    def annotation(self) -> str:
        plain = self.type if self.is_struct else {**FIXED, **SIZED}[self.type][1]
        plain = f"list[{plain}]" if self.is_array else plain
        return f"{plain} | None" if self.is_nullable else plain

    def initial(self) -> str:
        """What the field is in versions that do not have it."""
        if self.default is not None:
            return self.default
        if self.is_nullable:
            return "None"
        if self.is_array:
            return "[]"
        return f"{self.type}()" if self.is_struct else {**FIXED, **SIZED}[self.type][2]


class Shape(NamedTuple):
    """One struct."""

    name: str
    fields: list[Field]


# --- read kio's tables ----------------------------------------------------------------------------------------------


def read_shapes(api: Api, versions: Versions, side: str) -> tuple[list[Shape], int | None]:
    """Return the structs of a request or response, inner ones first, and the first version in the compact form."""
    shapes: dict[str, Shape] = {}
    compact_from = None
    for version in reversed(range(versions.first, versions.last + 1)):
        module = importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{side}")
        root = getattr(module, class_name(api, side))
        if root.__flexible__:
            compact_from = version
        merge(shapes, root, version)
    return list(shapes.values()), compact_from


def class_name(api: Api, side: str) -> str:
    return "".join(word.title() for word in api.name.split("_")) + side.title()


def merge(shapes: dict[str, Shape], struct: type, version: int) -> None:
    found = [read_field(field, version) for field in dataclasses.fields(struct)]
    for _, inner in found:
        if inner is not None:
            merge(shapes, inner, version)
    known = shapes.pop(struct.__name__, None) or Shape(struct.__name__, [])
    shapes[struct.__name__] = known  # behind the structs it is made of
    at = 0
    for field, _ in found:
        same = next((other for other in known.fields if other.name == field.name), None)
        if same is None:
            known.fields.insert(at, field)
            at += 1
            continue
        assert (same.type, same.is_array, same.tag) == (field.type, field.is_array, field.tag), (struct, field)
        same.versions.add(version)
        same.is_nullable |= field.is_nullable
        at = known.fields.index(same) + 1


def read_field(field: dataclasses.Field[Any], version: int) -> tuple[Field, type | None]:
    type_, is_nullable = without_none(field.type)
    is_array = get_origin(type_) is tuple
    if is_array:
        type_, _ = without_none(get_args(type_)[0])
    inner = type_ if isinstance(type_, type) and dataclasses.is_dataclass(type_) else None
    kafka_type = inner.__name__ if inner else field.metadata["kafka_type"]
    name = field.name.removeprefix("v3_and_below_")
    name = f"{name}_ms" if kafka_type in IN_MS else name
    is_tagged_struct = inner is not None and not is_array and "tag" in field.metadata
    found = Field(
        name=name,
        type=kafka_type,
        is_struct=inner is not None,
        is_array=is_array,
        # A tagged struct that is missing says as much as one with nothing but defaults, and costs less.
        is_nullable=(is_nullable and (is_array or kafka_type not in FIXED)) or is_tagged_struct,
        tag=field.metadata.get("tag"),
        default=default_of(field, kafka_type, is_array),
        versions={version},
    )
    return found, inner


def without_none(type_: Any) -> tuple[Any, bool]:
    if get_origin(type_) is UnionType:
        (plain,) = (each for each in get_args(type_) if each is not NoneType)
        return plain, True
    return type_, False


def default_of(field: dataclasses.Field[Any], kafka_type: str, is_array: bool) -> str | None:
    value = field.default
    if value is dataclasses.MISSING or is_array or kafka_type not in (*FIXED, "string"):
        return None
    if kafka_type in IN_MS:
        return "-1" if value is None else str(round(value.total_seconds() * 1000))
    if kafka_type == "uuid":
        return None
    if kafka_type == "string":
        return "None" if value is None else '"' + str(value) + '"'
    return str(bool(value) if kafka_type == "bool" else int(value))


# --- write Python ---------------------------------------------------------------------------------------------------


class Module:
    """The text of one module."""

    def __init__(self, api: Api, versions: Versions) -> None:
        self.api = api
        self.versions = versions
        self.span = versions  # those that have the struct that is being written
        self.forms: dict[str, str] = {}
        self.lines: list[str] = []

    def text(self) -> str:
        requests, request_compact = read_shapes(self.api, self.versions, "request")
        responses, response_compact = read_shapes(self.api, self.versions, "response")
        # ApiVersions answers what the client may not understand yet; both forms differ there alone.
        assert request_compact == response_compact
        for shape in rename_clashes(requests, responses):
            self.write_class(shape)
        for shape in requests:
            self.write_parser(shape)
        for shape in responses:
            self.write_encoder(shape)
        self.lines.append(f"\nRESPONSE = {class_name(self.api, 'response')}\n")
        return "\n".join([*self.head(request_compact), *self.lines])

    def head(self, compact_from: int | None) -> Iterator[str]:
        first, last = self.versions
        span = f"version {first}" if first == last else f"versions {first} to {last}"
        yield f'"""{class_name(self.api, "")}, {span}. Written by tools/generate_kafka_codecs.py: do not edit."""'
        body = "\n".join(self.lines)
        if "= []" in body:
            yield "\n# ruff: noqa: RUF012  # msgspec copies an empty list that is a default"
        yield "\nfrom __future__ import annotations\n"
        yield "from struct import Struct\n" if self.forms else ""
        yield "import msgspec\n"
        names = [name for name in ("NO_ID", "Reader", "Records", "Writer") if name in body]
        yield f"from flymq.wire.kafka.values import {', '.join(names)}\n"
        yield f"COMPACT_FROM = {last + 1 if compact_from is None else compact_from}"
        for form, name in self.forms.items():
            yield f'{name} = Struct(">{form}")'
        yield ""

    def write_class(self, shape: Shape) -> None:
        self.lines.append(f"\nclass {shape.name}(msgspec.Struct):")
        for field in shape.fields:
            initial = field.initial()
            if field.is_struct and not field.is_array and not field.is_nullable:
                initial = f"msgspec.field(default_factory={field.type})"
            self.lines.append(f"    {field.name}: {field.annotation()} = {initial}")
        if not shape.fields:
            self.lines.append('    """It says nothing but that it is asked."""')
        self.lines.append("")

    def span_of(self, shape: Shape) -> Versions:
        """Return the versions that have the struct: all have a request and a response, not all have what is in them."""
        if shape.name in (class_name(self.api, "request"), class_name(self.api, "response")):
            return self.versions
        versions = set().union(*(field.versions for field in shape.fields))
        return Versions(min(versions), max(versions))

    def condition(self, field: Field) -> str:
        """Return when the field is there; "" for always."""
        first, last = min(field.versions), max(field.versions)
        assert field.versions == set(range(first, last + 1)), field
        if first > self.span.first and last < self.span.last:
            return f"{first} <= version <= {last}"
        if first > self.span.first:
            return f"version >= {first}"
        return f"version <= {last}" if last < self.span.last else ""

    def form(self, fields: Iterable[Field]) -> str:
        """Return the name of the Struct for these neighbours."""
        codes = "".join(FIXED[field.type][0] for field in fields)
        return self.forms.setdefault(codes, "_" + codes.replace("H", "u").replace("?", "t").upper())

    # --- parsers

    def write_parser(self, shape: Shape) -> None:
        self.span = self.span_of(shape)
        is_root = shape.name == class_name(self.api, "request")
        name = "parse_request" if is_root else f"_parse_{snake(shape.name)}"
        uses_version = any(self.condition(field) for field in shape.fields) or self.has_inner(shape)
        argument = "version" if uses_version or is_root else "_version"
        self.lines += [f"\ndef {name}(reader: Reader, {argument}: int) -> {shape.name}:"]
        for run in runs([field for field in shape.fields if field.tag is None], self.condition):
            self.parse_run(run)
        self.parse_tags([field for field in shape.fields if field.tag is not None])
        values = ", ".join(field.name for field in shape.fields)
        self.lines += [f"    return {shape.name}({values})", ""]

    def has_inner(self, shape: Shape) -> bool:
        return any(field.is_struct for field in shape.fields)

    def parse_run(self, run: list[Field]) -> None:
        condition = self.condition(run[0])
        indent = "        " if condition else "    "
        if condition:
            self.lines += [f"    {field.name}{annotated(field)} = {field.initial()}" for field in run]
            self.lines.append(f"    if {condition}:")
        self.lines += [indent + line for line in self.parse_lines(run, "reader")]

    def parse_lines(self, run: list[Field], reader: str) -> Iterator[str]:
        if run[0].is_fixed:
            comma = "," if len(run) == 1 else ""
            yield f"{', '.join(field.name for field in run)}{comma} = {reader}.unpack({self.form(run)})"
        else:
            yield f"{run[0].name} = {self.parse_value(run[0], reader)}"

    def parse_value(self, field: Field, reader: str) -> str:
        nullable = "nullable_" if field.is_nullable else ""
        if not field.is_array and not field.is_struct:
            method = "records" if field.type == "records" else nullable + SIZED[field.type][0]
            return f"{reader}.{method}()"
        if field.is_array and field.type == "int32":
            return f"{reader}.{nullable}int32s()"
        if field.is_struct:
            one = f"_parse_{snake(field.type)}({reader}, version)"
        elif field.type in FIXED:
            one = f"{reader}.unpack({self.form([field])})[0]"
        else:
            one = f"{reader}.{SIZED[field.type][0]}()"
        if not field.is_array:
            may_miss = field.is_nullable and field.tag is None
            return f"{one} if {reader}.is_present() else None" if may_miss else one
        if field.is_nullable:
            return f"None if (amount := {reader}.nullable_count()) < 0 else [{one} for _ in range(amount)]"
        return f"[{one} for _ in range({reader}.count())]"

    def parse_tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.lines.append("    reader.end()")
            return
        self.lines += [f"    {field.name}{annotated(field)} = {field.initial()}" for field in tagged]
        self.lines.append("    for tag, inner in reader.tags():")
        word = "if"
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            condition = self.condition(field)
            also = f" and {condition}" if condition else ""
            self.lines.append(f"        {word} tag == {field.tag}{also}:")
            self.lines += [f"            {line}" for line in self.parse_lines([field], "inner")]
            word = "elif"

    # --- encoders

    def write_encoder(self, shape: Shape) -> None:
        self.span = self.span_of(shape)
        is_root = shape.name == class_name(self.api, "response")
        name = "encode_response" if is_root else f"_encode_{snake(shape.name)}"
        uses_version = any(self.condition(field) for field in shape.fields) or self.has_inner(shape)
        argument = "version" if uses_version or is_root else "_version"
        self.lines += [f"\ndef {name}(writer: Writer, value: {shape.name}, {argument}: int) -> None:"]
        for run in runs([field for field in shape.fields if field.tag is None], self.condition):
            condition = self.condition(run[0])
            indent = "        " if condition else "    "
            if condition:
                self.lines.append(f"    if {condition}:")
            self.lines += [indent + line for line in self.encode_lines(run, "writer")]
        self.encode_tags([field for field in shape.fields if field.tag is not None])
        self.lines.append("")

    def encode_lines(self, run: list[Field], writer: str) -> Iterator[str]:
        field = run[0]
        value = f"value.{field.name}"
        nullable = "nullable_" if field.is_nullable else ""
        if field.is_fixed:
            yield f"{writer} += {self.form(run)}.pack({', '.join(f'value.{each.name}' for each in run)})"
        elif field.is_array and field.type == "int32":
            yield f"{writer}.{nullable}int32s({value})"
        elif field.is_array:
            one = snake(field.type) if field.is_struct else f"one_{field.type}"
            yield f"{writer}.{nullable}amount({value})"
            yield f"for {one} in {value}{' or ()' if field.is_nullable else ''}:"
            if field.is_struct:
                yield f"    _encode_{one}({writer}, {one}, version)"
            elif field.type in FIXED:
                yield f"    {writer} += {self.form([field])}.pack({one})"
            else:
                yield f"    {writer}.{SIZED[field.type][0]}({one})"
        elif field.is_struct and field.is_nullable and field.tag is None:
            yield f"{writer}.presence({value})"
            yield f"if {value} is not None:"
            yield f"    _encode_{snake(field.type)}({writer}, {value}, version)"
        elif field.is_struct:
            yield f"_encode_{snake(field.type)}({writer}, {value}, version)"
        else:
            method = "records" if field.type == "records" else nullable + SIZED[field.type][0]
            yield f"{writer}.{method}({value})"

    def encode_tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.lines.append("    writer.end()")
            return
        self.lines.append("    tagged: dict[int, Writer] = {}")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            condition = self.condition(field)
            also = f" and {condition}" if condition else ""
            initial = field.initial()
            is_said = f"value.{field.name}" if initial in ("[]", "False") else f"value.{field.name} != {initial}"
            is_said = is_said.replace("!= None", "is not None")
            self.lines.append(f"    if {is_said}{also}:")
            self.lines.append(f"        inner = tagged[{field.tag}] = writer.inner()")
            self.lines += [f"        {line}" for line in self.encode_lines([field], "inner")]
        self.lines.append("    writer.tags(tagged)")


def rename_clashes(requests: list[Shape], responses: list[Shape]) -> Iterator[Shape]:
    """Yield every struct once, in an order in which they can be defined; equal names of different structs part."""
    by_name = {shape.name: shape for shape in requests}
    renamed: dict[str, str] = {}
    for at, shape in enumerate(responses):
        for field in shape.fields:  # first, as two structs also differ by what is in them
            field.type = renamed.get(field.type, field.type)
        other = by_name.get(shape.name)
        if other is not None and other != shape:
            renamed[shape.name] = f"{shape.name}Answer"
            responses[at] = shape._replace(name=renamed[shape.name])
    yield from requests
    yield from (shape for shape in responses if shape.name not in by_name)


def runs(fields: list[Field], condition: Any) -> Iterator[list[Field]]:
    """Yield neighbours that are read at once: of fixed size and there in the same versions. Others come alone."""
    run: list[Field] = []
    for field in fields:
        if run and not (field.is_fixed and run[0].is_fixed and condition(field) == condition(run[0])):
            yield run
            run = []
        run.append(field)
    if run:
        yield run


def annotated(field: Field) -> str:
    return f": {field.annotation()}" if field.is_array or field.is_nullable else ""


def snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def generate(target: Path) -> None:
    """Write all modules into a directory."""
    target.mkdir(exist_ok=True)
    (target / "__init__.py").write_text('"""One module per request, written by tools/generate_kafka_codecs.py."""\n')
    for api, versions in CODECS.items():
        (target / f"{api.name.lower()}.py").write_text(Module(api, versions).text())
    for command in (["format"], ["check", "--fix"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--config", CONFIG, "--quiet", target], check=True)


if __name__ == "__main__":
    generate(TARGET)
