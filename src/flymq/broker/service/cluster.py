"""The cluster as clients see it: its id, its brokers and their addresses, and where this one keeps its data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from flymq.cluster.brokers import ClusterBroker, Listener
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
    """Whether it may lead. One that has just registered does not yet, and one that is fenced no more."""
    is_draining: bool = False
    """It is about to stop."""


@dataclass(frozen=True, slots=True)
class Cluster:
    cluster_id: str
    broker_id: int
    data_dir: Path
    disk: Disk
    members: Members
    advertised: tuple[str | None, int | None] = (None, None)
    """The advertised address of a single broker; None: each client gets the address it has connected to."""
    additional_listeners: dict[int, Listener] = field(default_factory=dict)
    """By the port that they listen on. Clients that come in by one are told the addresses of the brokers there."""

    @property
    def controller_id(self) -> int:
        """The broker that is the controller; -1 while none is elected."""
        if not self.members:
            return self.broker_id
        return -1 if self.members.controller is None else self.members.controller.broker_id

    def brokers(self, dialled: Address) -> list[BrokerInfo]:
        """Return all registered brokers, for a client that has connected to this address."""
        listener = self._listener(dialled)
        return [_info(broker, listener) for broker in self.members] or [self.this_broker(dialled)]

    def usable_brokers(self, dialled: Address) -> list[BrokerInfo]:
        """Return the brokers that a client should connect to."""
        brokers = self.brokers(dialled)
        return [broker for broker in brokers if broker.is_live] or brokers

    def find(self, broker_id: int, dialled: Address) -> BrokerInfo | None:
        """Return one broker that is registered."""
        return next((broker for broker in self.brokers(dialled) if broker.broker_id == broker_id), None)

    def is_live(self, broker_id: int) -> bool:
        """Whether this broker may lead and be in sync."""
        if not self.members:
            return broker_id == self.broker_id
        broker = self.members.find(broker_id)
        return broker is not None and broker.is_live

    def this_broker(self, dialled: Address) -> BrokerInfo:
        """Return this broker, for a client that has connected to this address."""
        if (member := self.members.find(self.broker_id)) is not None:
            return _info(member, self._listener(dialled))
        if (additional := self.additional_listeners.get(dialled[1])) is not None:
            return BrokerInfo(self.broker_id, additional.host, additional.port)
        host, port = self.advertised
        return BrokerInfo(self.broker_id, host or dialled[0], port or dialled[1])

    def _listener(self, dialled: Address) -> str:
        """Return the name of the listener by which a client has come in."""
        additional = self.additional_listeners.get(dialled[1])
        return "" if additional is None else additional.name

    def space(self) -> DiskSpace:
        """Return the size of the file system of the data directory, and what is free."""
        return self.disk.space(self.data_dir)


def _info(broker: ClusterBroker, listener: str) -> BrokerInfo:
    registration = broker.registration
    addresses = registration.listeners
    address = next((each for each in addresses if each.name == listener), addresses[0])
    return BrokerInfo(
        broker.broker_id, address.host, address.port, registration.rack, broker.is_live, registration.is_draining
    )
