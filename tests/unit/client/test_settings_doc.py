"""The reference page names every setting of the SDK with its default."""

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from flymq.client.settings import (
    ClientSettings,
    CodecSettings,
    ConnectionConfig,
    ConsumerConfig,
    ProducerConfig,
    TracingSettings,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "python-settings.md"
_ROW = re.compile(r"^\| `(\w+)` \| `(.*?)` \| .+ \|$", re.MULTILINE)


def shown(default: Any) -> str:
    """Return a default as a user would write it."""
    if isinstance(default, Enum):
        return f'"{default.name.lower()}"'
    if isinstance(default, tuple):
        return str(list(default)).replace("'", '"')
    return f'"{default}"' if isinstance(default, str) else repr(default)


def test_every_setting_is_on_the_page_with_its_default():
    on_page = dict(_ROW.findall(PAGE.read_text()))
    for config in (ConnectionConfig, ProducerConfig, ConsumerConfig):
        for field in fields(config):
            if field.name != "addresses":
                assert on_page.pop(field.name) == shown(field.default), field.name
    others = {*CodecSettings.__annotations__, *TracingSettings.__annotations__}
    assert set(on_page) == others
    assert others <= set(ClientSettings.__annotations__)
