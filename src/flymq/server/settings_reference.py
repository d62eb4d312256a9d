"""Write docs/reference/settings.md from the tree of settings, so that the page cannot lag behind.

    python -m flymq.server.settings_reference            write the page
    python -m flymq.server.settings_reference --check    exit 1 if the page is not up to date

Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from flymq.server.config import Config
from flymq.server.settings import Setting, describe_settings

PAGE = Path("docs/reference/settings.md")

_INTRODUCTION = """\
# Settings

<!-- Written by `python -m flymq.server.settings_reference`; change src/flymq/server/config.py instead. -->

A broker takes its settings from these places; later ones win:

1. the defaults below;
2. dev mode (`flymq server start --dev`), which turns on `topics.auto_create`;
3. a TOML file (`flymq server start --config FILE`);
4. environment variables: `FLYMQ_`, then the setting's name in capitals, with two underscores between the section and
   the rest;
5. flags of the command line.

```toml
[listener]
host = "0.0.0.0"        # FLYMQ_LISTENER__HOST=0.0.0.0
port = 9092             # FLYMQ_LISTENER__PORT=9092

[topics.defaults]
retention.ms = 86400000 # FLYMQ_TOPICS__DEFAULTS__RETENTION_MS=86400000
```

Every value is checked before the broker starts. A wrong or unknown one stops it with a message that names the setting
and where the value came from. A setting that may be empty is unset by an empty text.
"""

_TOPIC_SETTINGS = """\
## Topic settings

What a topic promises about its records. A topic can be created with values of its own, by these names, and altered
later. The broker's `[topics.defaults]` table, or the variable in the second column, sets what all other topics have.
"""


def render() -> str:
    """Return the whole page."""
    settings = describe_settings()
    parts = [_INTRODUCTION]
    for name, section in get_type_hints(Config).items():
        own = [setting for setting in settings if setting.levels[0] == name and len(setting.levels) == 2]
        parts.append(f"## `[{name}]`\n\n{section.__doc__}\n\n{_table(own, level=0)}")
    topic = [setting for setting in settings if setting.levels[:-1] == ("topics", "defaults")]
    parts.append(f"{_TOPIC_SETTINGS}\n{_table(topic, level=2)}")
    return "\n".join(parts)


def _table(settings: Iterable[Setting], *, level: int) -> str:
    """Draw a table; the names are shown from `level` on."""
    return "\n".join(_rows(settings, level)) + "\n"


def _rows(settings: Iterable[Setting], level: int) -> Iterator[str]:
    yield "| Setting | Environment variable | Takes | Default | Meaning |"
    yield "|---|---|---|---|---|"
    for setting in settings:
        name = ".".join(setting.levels[level:])
        variable = "–" if setting.type is Mapping else f"`{setting.variable}`"
        yield f"| `{name}` | {variable} | {setting.takes} | {_shown(setting)} | {setting.text} |"


def _shown(setting: Setting) -> str:
    value: Any = setting.default
    if value is None:
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    readable = _readable(value, setting.unit) if isinstance(value, int) else None
    return f"`{value}` ({readable})" if readable else f"`{value}`"


_UNITS = {
    "milliseconds": (("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)),
    "bytes": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
}


def _readable(value: int, unit: str | None) -> str | None:
    """Return the same amount in the largest unit that divides it."""
    for name, size in _UNITS.get(unit or "", ()):
        if value > 0 and value % size == 0:
            count = value // size
            return f"{count} {name}s" if name == "day" and count > 1 else f"{count} {name}"
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m flymq.server.settings_reference", description="Write settings.md.")
    parser.add_argument("--check", action="store_true", help="only tell whether the page is up to date")
    page = render()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
        return 0
    print(f"{PAGE} is not up to date.\nTry: python -m flymq.server.settings_reference", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
