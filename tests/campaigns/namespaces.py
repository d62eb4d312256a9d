"""Brokers in network namespaces of their own, so that any of them can be cut off from any other, one way or both.

    the rest of the machine: clients at .1, the metadata store at .2 ── bridge ┬── namespace of broker 1 at .11
                                                                               └── namespace of broker 2 at .12 …

A cut is a blackhole route: what one side sends to the other is lost without a word, as with a broken switch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.cluster.brokers import Place

OUTSIDE = 0
"""In the place of a broker: clients, and whatever else of the machine is in no namespace."""


def why_not() -> str | None:
    """Return why there can be no namespaces here; None if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no `ip` command"
    name = f"flymq-{os.getpid()}-try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"`ip netns add` is refused: {tried.stderr.strip()}"
    _ip("netns", "delete", name)
    return None


@dataclass
class Namespaces:
    """The network of one cluster."""

    brokers: Sequence[int]
    _cuts: set[tuple[int, str]] = field(default_factory=set)

    @property
    def _subnet(self) -> str:
        return f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"

    @property
    def _bridge(self) -> str:
        return f"fly{os.getpid()}"

    def address(self, broker: int) -> str:
        return f"{self._subnet}.{1 if broker == OUTSIDE else 10 + broker}"

    @property
    def store_address(self) -> str:
        return f"{self._subnet}.2"

    def place(self, broker: int) -> Place:
        return Place(self.address(broker), ["ip", "netns", "exec", self._name(broker)])

    def _name(self, broker: int) -> str:
        return f"{self._bridge}-{broker}"

    def open(self, stack: ExitStack) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        stack.callback(_ip, "link", "delete", self._bridge)
        for address in (self.address(OUTSIDE), self.store_address):
            _ip("address", "add", f"{address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for broker in self.brokers:
            name, outer = self._name(broker), f"{self._bridge}v{broker}"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", outer, "master", self._bridge, "up")
            for words in (
                ["address", "add", f"{self.address(broker)}/24", "dev", "eth0"],
                ["link", "set", "eth0", "up"],
                ["link", "set", "lo", "up"],
            ):
                _ip("-n", name, *words)
        stack.callback(self.mend)

    # --- cuts

    def cut(self, source: int, target: int) -> None:
        """Lose what one broker, or the outside, sends to another from now on."""
        self._blackhole(source, self.address(target))
        if target == OUTSIDE:
            self._blackhole(source, self.store_address)

    def cut_from_store(self, source: int) -> None:
        """Lose what a broker sends to the metadata store."""
        self._blackhole(source, self.store_address)

    def mend(self) -> None:
        """Mend all cuts."""
        for source, address in self._cuts:
            self._route("delete", source, address)
        self._cuts.clear()

    def _blackhole(self, source: int, address: str) -> None:
        if (source, address) not in self._cuts:
            self._cuts.add((source, address))
            self._route("add", source, address)

    def _route(self, what: str, source: int, address: str) -> None:
        inside = [] if source == OUTSIDE else ["-n", self._name(source)]
        _ip(*inside, "route", what, "blackhole", f"{address}/32")


@contextmanager
def namespaces(brokers: Sequence[int]) -> Iterator[Namespaces]:
    """Have namespaces until the end of the block."""
    with ExitStack() as stack:
        made = Namespaces(brokers)
        made.open(stack)
        yield made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
