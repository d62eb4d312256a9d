"""The addresses that a broker listens on, and those by which others reach it.

    listener.additional = "outside://0.0.0.0:9094 as kafka.example.com:19094"

A client is told the addresses of the listener it came in by: inside a private network those of the default listener,
from outside those of the one that is reached from there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flymq.cluster.brokers import Listener
from flymq.model.errors import InvalidSetting

_FORM = re.compile(r"(?P<name>[A-Za-z0-9_-]{1,64})://(?P<where>\S+)(?:\s+as\s+(?P<advertised>\S+))?")
_ADDRESS = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^:\[\]/@]+)):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65535
_WILDCARDS = frozenset({"", "0.0.0.0", "::", "*"})
_HINT = "Set it to outside://0.0.0.0:9094 as kafka.example.com:19094, say; several are separated by commas."


@dataclass(frozen=True, slots=True)
class AdditionalListener:
    """One more address to listen on, and how it is advertised."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    @property
    def advertised(self) -> Listener:
        return Listener(self.advertised_host, self.advertised_port, self.name)


def is_wildcard(host: str) -> bool:
    """Whether nobody can connect to this address: it stands for all addresses of a machine."""
    return host in _WILDCARDS


def parse_additional(text: str | None, taken_port: int) -> tuple[AdditionalListener, ...]:
    """Parse `listener.additional`. `taken_port` is the one of the default listener."""
    found: list[AdditionalListener] = []
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        listener = _parse_one(part)
        if listener.name in (each.name for each in found):
            raise InvalidSetting(f"listener.additional has {listener.name!r} twice", hint="Give each another name.")
        if listener.port in (taken_port, *(each.port for each in found)):
            # by its port the broker knows by which listener a client has come in
            raise InvalidSetting(
                f"port {listener.port} of listener.additional is the port of another listener",
                hint="Give each listener another port.",
            )
        found.append(listener)
    return tuple(found)


def _parse_one(part: str) -> AdditionalListener:
    form = _FORM.fullmatch(part)
    if form is None:
        raise InvalidSetting(f"listener.additional: {part!r} is not NAME://HOST:PORT as HOST:PORT", hint=_HINT)
    host, port = _parse_address(form["where"])
    advertised_host, advertised_port = _parse_address(form["advertised"] or form["where"])
    if is_wildcard(advertised_host):
        raise InvalidSetting(
            f"listener.additional: nobody can connect to {form['advertised'] or form['where']}",
            hint=f"Say by which address clients reach it: {form['name']}://{form['where']} as HOST:PORT.",
        )
    return AdditionalListener(form["name"], host, port, advertised_host, advertised_port)


def _parse_address(text: str) -> tuple[str, int]:
    address = _ADDRESS.fullmatch(text)
    if address is None or not 1 <= int(address["port"]) <= _PORT_MAX:
        raise InvalidSetting(f"listener.additional: {text!r} is not HOST:PORT", hint=_HINT)
    return address["ipv6"] or address["host"], int(address["port"])
