"""Load a `Config` from a file, environment variables and flags. An error names the setting, its source and the reason.

Sources, later ones take precedence: defaults, dev mode, a TOML file, environment variables, flags. A setting has one
name, its path in the tree of config.py, and every source derives its own spelling from that:

    listener.port       [listener] port = 9092       FLYMQ_LISTENER__PORT=9092       {"listener.port": 9092}

Two underscores separate the levels in a variable's name. One would be ambiguous, and container platforms set variables
such as FLYMQ_BROKER_PORT for a service called flymq-broker; those are ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from flymq.broker.access.passwords import PasswordHash, parse_password_hash
from flymq.model.errors import InvalidSetting
from flymq.server.config import DEV_DEFAULTS, INT64_MAX, Config

ENVIRONMENT_PREFIX = "FLYMQ_"

_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name, allowed values and description."""

    path: tuple[str, ...]
    """The attribute path from `Config`."""
    levels: tuple[str, ...]
    """The same path in its public spelling: a topic's `retention_ms` is `retention.ms`."""
    type: type[Any]
    is_optional: bool
    default: Any
    text: str
    low: int = 0
    high: int = INT64_MAX
    must_exist: bool = False
    is_secret: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.levels)

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return ENVIRONMENT_PREFIX + "__".join(level.upper().replace(".", "_") for level in self.levels)

    @property
    def unit(self) -> str | None:
        words = self.levels[-1].replace(".", "_").split("_")
        if "bytes" in words:
            return "bytes per second" if words[-2:] == ["per", "s"] else "bytes"
        return "milliseconds" if "ms" in words else None

    @property
    def takes(self) -> str:
        """The allowed values, in words."""
        if self.type is bool:
            return "true or false"
        if issubclass(self.type, Enum):
            *others, last = (repr(choice.value) for choice in self.type)
            return f"{', '.join(others)} or {last}"
        if self.type is int:
            number = f"an integer ({self.unit})" if self.unit else "an integer"
            bounds = f" from {self.low} to {self.high}" if self.high < INT64_MAX else f", at least {self.low}"
            return number + bounds
        if self.type is float:
            return f"a number from {self.low} to {self.high}"
        if self.type is Path:
            return "the path of an existing file" if self.must_exist else "a path"
        return "a table of user names and password hashes" if self.type is Mapping else "text"

    def parse(self, raw: Any) -> Any:
        """Return the value of `raw`; raise `ValueError` or `KeyError` if it is not valid."""
        if self.is_optional and raw in (None, ""):
            return None
        if self.type is bool:
            return raw if isinstance(raw, bool) else _BOOLEANS[_text(raw).lower()]
        if issubclass(self.type, Enum):
            return self.type(raw)  # `cleanup.policy` may be empty
        if self.type is int or self.type is float:
            return self._parse_number(raw)
        if self.type is Path:
            return self._parse_path(raw)
        return _parse_users(self.name, raw) if self.type is Mapping else _text(raw)

    def _parse_number(self, raw: Any) -> int | float:
        number: int | float = self.type(raw if isinstance(raw, (int, self.type)) else _text(raw))
        if isinstance(raw, bool) or not self.low <= number <= self.high:
            raise ValueError
        return number

    def _parse_path(self, raw: Any) -> Path:
        path = raw if isinstance(raw, Path) else Path(_text(raw)).expanduser()
        if self.must_exist and not path.is_file():
            raise ValueError
        return path


def _text(raw: Any) -> str:
    if not isinstance(raw, str) or not raw:
        raise ValueError
    return raw


def _parse_users(name: str, raw: Any) -> dict[str, PasswordHash]:
    if not isinstance(raw, dict):
        raise ValueError
    users = {}
    for user, hashed in raw.items():
        try:
            users[user] = parse_password_hash(_text(hashed))
        except ValueError:
            raise InvalidSetting(f"{name}.{user} takes text") from None
        except InvalidSetting as error:
            raise InvalidSetting(f"{name}.{user}: {error.message}", hint=_HASH_HINT) from None
    return users


_HASH_HINT = "Create a hash with `python -m flymq.server.hash_password`."


# --- the table ------------------------------------------------------------------------------------------------------


@cache
def describe_settings() -> tuple[Setting, ...]:
    """Return every setting, in the order of the tree."""
    return tuple(_walk(Config, (), ()))


def _walk(tree: type[Any], path: tuple[str, ...], levels: tuple[str, ...]) -> Iterator[Setting]:
    hints = get_type_hints(tree)
    for f in fields(tree):
        here = (*path, f.name)
        named = (*levels, f.metadata.get("name", f.name))
        if is_dataclass(hints[f.name]):
            yield from _walk(hints[f.name], here, named)
            continue
        plain, is_optional = _unwrap(hints[f.name])
        limits = {key: value for key, value in f.metadata.items() if key != "name"}
        default = f.default if f.default is not MISSING else None
        yield Setting(here, named, plain, is_optional, default, **limits)


def _unwrap(hint: Any) -> tuple[type[Any], bool]:
    """Split `X | None` into X and True; return the origin of `Mapping[K, V]`."""
    if isinstance(hint, UnionType):
        (plain,) = (member for member in get_args(hint) if member is not NoneType)
        return plain, True
    return get_origin(hint) or hint, False


# --- the sources ----------------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """A raw value and its source."""

    raw: Any
    origin: str


def load_config(
    *, file: Path | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """Return the settings of these sources, or raise `InvalidSetting`. A flag that is None counts as not set."""
    settings = {setting.name: setting for setting in describe_settings()}
    given: dict[str, _Given] = {}
    if file is not None:
        given.update(_from_file(file, settings))
    given.update(_from_environment(environ or {}, settings))
    for name, raw in (flags or {}).items():
        if raw is not None:
            given[_known(name, settings, "the command line")] = _Given(raw, "the command line")
    values = {settings[name].path: _parse(settings[name], value) for name, value in given.items()}
    if values.get(settings["broker.dev"].path):
        values = {settings[name].path: value for name, value in DEV_DEFAULTS.items()} | values
    if values.get(settings["cluster.etcd"].path) and "broker.id" not in given:
        # The default would be the id of every broker that forgot it.
        raise InvalidSetting(
            "cluster.etcd is set, but broker.id is not",
            hint="Give each broker of the cluster an id of its own, with --id or broker.id.",
        )
    return _build(Config, values, ())


def _from_file(path: Path, settings: Mapping[str, Setting]) -> dict[str, _Given]:
    try:
        with path.open("rb") as stream:
            document = tomllib.load(stream)
    except OSError as error:
        raise InvalidSetting(
            f"the config file {path} cannot be read: {error.strerror}", hint="Check the path given to --config."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the config file {path} is not TOML: {error}", hint="See https://toml.io.") from None
    origin = f"the file {path}"
    return {_known(name, settings, origin): _Given(raw, origin) for name, raw in _flatten(document, "", settings)}


def _flatten(table: Mapping[str, Any], prefix: str, settings: Mapping[str, Setting]) -> Iterator[tuple[str, Any]]:
    """Yield the leaves by their dotted names; `retention.ms = 1` and `"retention.ms" = 1` mean the same."""
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict) and name not in settings:
            yield from _flatten(value, name + ".", settings)
        else:
            yield name, value


def _from_environment(environ: Mapping[str, str], settings: Mapping[str, Setting]) -> dict[str, _Given]:
    names = {setting.variable: setting.name for setting in settings.values()}
    meant = {variable.replace("__", "_"): variable for variable in names}
    given = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable in names:
            given[names[variable]] = _Given(text, f"the environment variable {variable}")
        elif variable in meant:
            raise InvalidSetting(f"unknown environment variable {variable}", hint=f"Did you mean {meant[variable]}?")
        elif "__" in variable:
            raise InvalidSetting(f"unknown environment variable {variable}", hint=_nearest(variable, names))
    return given


def _known(name: str, settings: Mapping[str, Setting], origin: str) -> str:
    if name not in settings:
        raise InvalidSetting(f"unknown setting {name} (from {origin})", hint=_nearest(name, settings))
    return name


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    matches = get_close_matches(name, known, n=1)
    return f"Did you mean {matches[0]}?" if matches else "docs/reference/settings.md lists all settings."


def _parse(setting: Setting, given: _Given) -> Any:
    try:
        return setting.parse(given.raw)
    except (ValueError, KeyError):
        shown = "" if setting.type is Mapping or setting.is_secret else f", not {str(given.raw)!r}"
        raise InvalidSetting(f"{setting.name} takes {setting.takes}{shown} (from {given.origin})") from None
    except InvalidSetting as error:
        raise InvalidSetting(f"{error.message} (from {given.origin})", hint=error.hint) from None


def _build(tree: type[T], values: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> T:
    """Build the tree from the given leaves; the others keep their defaults."""
    hints = get_type_hints(tree)
    arguments = {}
    for f in fields(tree):  # type: ignore[arg-type]  # every node of the tree is a dataclass
        here = (*path, f.name)
        if is_dataclass(hints[f.name]):
            arguments[f.name] = _build(hints[f.name], values, here)
        elif here in values:
            arguments[f.name] = values[here]
    return tree(**arguments)
