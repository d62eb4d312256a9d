"""The page on the internal topics names every kind of entry and every field, in the order of their bytes."""

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from flymq.coordination import entries

DOC = (Path(__file__).parents[3] / "docs" / "formats" / "internal-topics.md").read_text()
VALUES = [*get_args(entries.Value), entries.MemberValue, entries.EndedValue]


def test_every_kind_of_key_is_documented_with_its_fields() -> None:
    documented = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| \w+ \|$", DOC, re.MULTILINE)
    actual = [
        (key.__struct_config__.tag, ", ".join(field.name for field in msgspec.structs.fields(key)))
        for key in get_args(entries.Key)
    ]
    assert sorted(documented) == sorted(actual)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_every_value_is_documented_with_its_fields(value: type[msgspec.Struct]) -> None:
    section = re.search(rf"^### {value.__name__}\n(.*?)(?=^##|\Z)", DOC, re.MULTILINE | re.DOTALL)
    assert section is not None
    documented = re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)
    assert documented == [field.name for field in msgspec.structs.fields(value)]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_fields_added_later_have_defaults(value: type[msgspec.Struct]) -> None:
    required = [field.required for field in msgspec.structs.fields(value)]
    assert required == sorted(required, reverse=True)
