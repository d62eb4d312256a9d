"""The cluster as clients see it: its id, its brokers and their addresses, and where this one keeps its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flymq.cluster.members import Members
from flymq.host.disk import Disk
from flymq.host.disk import DiskSpace as DiskSpace

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: int
    host: str
    port: int
    rack: str = ""
    is_live: bool = True
    """Whether it may lead. One that has just registered does not yet."""


@dataclass(frozen=True, slots=True)
class Cluster:
    cluster_id: str
    broker_id: int
    data_dir: Path
    disk: Disk
    members: Members
    advertised: tuple[str | None, int | None] = (None, None)
    """The advertised address of a single broker; None: each client gets the address it has connected to."""

    @property
    def controller_id(self) -> int:
        """The broker that is the controller; -1 while none is elected."""
        if not self.members:
            return self.broker_id
        return -1 if self.members.controller is None else self.members.controller.broker_id

    def brokers(self, dialled: Address) -> list[BrokerInfo]:
        """Return all brokers, for a client that has connected to this address."""
        found = []
        for broker in self.members:
            address = broker.registration.listeners[0]
            found.append(
                BrokerInfo(broker.broker_id, address.host, address.port, broker.registration.rack, broker.is_live)
            )
        return found or [self.this_broker(dialled)]

    def this_broker(self, dialled: Address) -> BrokerInfo:
        """Return this broker, for a client that has connected to this address."""
        if (member := self.members.find(self.broker_id)) is not None:
            address = member.registration.listeners[0]
            return BrokerInfo(self.broker_id, address.host, address.port, member.registration.rack, member.is_live)
        host, port = self.advertised
        return BrokerInfo(self.broker_id, host or dialled[0], port or dialled[1])

    def space(self) -> DiskSpace:
        """Return the size of the file system of the data directory, and what is free."""
        return self.disk.space(self.data_dir)
