"""Settings of Kafka by name, with their types, defaults and allowed values. Values are text, as in Kafka's protocol."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from flymq.model.errors import InvalidSetting

_INT_MAX = (1 << 31) - 1
_LONG_MAX = (1 << 63) - 1


class SettingType(IntEnum):
    """The type of a setting. The values are Kafka's."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8


_HIGHEST = {SettingType.INT: _INT_MAX, SettingType.LONG: _LONG_MAX}


@dataclass(frozen=True, slots=True)
class TypedSetting:
    """One setting."""

    name: str
    type: SettingType
    default: str
    text: str
    low: int = 0
    choices: tuple[str, ...] = ()
    item: str = ""
    """The regular expression of the value, or of an item of a list."""

    def parse(self, value: Any) -> str:
        """Return the value in its usual form, or raise an error that names the setting."""
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if self.type is SettingType.BOOLEAN:
            return self._choice(text.lower(), ("true", "false"))
        if self.type in _HIGHEST:
            return self._number(text)
        if self.type is SettingType.LIST:
            return self._list(text)
        if self.item and not re.fullmatch(self.item, text, re.ASCII):
            raise InvalidSetting(f"{self.name} takes {self.item}, not {text!r}")
        return self._choice(text, self.choices) if self.choices else text

    def _choice(self, text: str, choices: Iterable[str]) -> str:
        if text not in choices:
            raise InvalidSetting(f"{self.name} takes one of {', '.join(map(repr, choices))}, not {text!r}")
        return text

    def _number(self, text: str) -> str:
        high = _HIGHEST[self.type]
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) or not self.low <= int(text) <= high:
            raise InvalidSetting(f"{self.name} takes an integer from {self.low} to {high}, not {text!r}")
        return str(int(text))

    def _list(self, text: str) -> str:
        items = [item.strip() for item in text.split(",")] if text else []
        if items != ["*"] and not all(re.fullmatch(self.item, item, re.ASCII) for item in items):
            raise InvalidSetting(f"{self.name} takes a list of items like {self.item}, or *, not {text!r}")
        return ",".join(items)


def by_name(settings: Iterable[TypedSetting]) -> dict[str, TypedSetting]:
    return {setting.name: setting for setting in settings}
