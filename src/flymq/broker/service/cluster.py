"""The cluster as clients see it: its id, its brokers and their addresses, and where this one keeps its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flymq.host.disk import Disk
from flymq.host.disk import DiskSpace as DiskSpace

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Cluster:
    cluster_id: str
    broker_id: int
    data_dir: Path
    disk: Disk
    advertised: tuple[str | None, int | None] = (None, None)
    """The advertised address; None: each client gets the address it has connected to."""

    @property
    def controller_id(self) -> int:
        return self.broker_id

    def brokers(self, dialled: Address) -> list[BrokerInfo]:
        """Return all brokers, for a client that has connected to this address."""
        return [self.this_broker(dialled)]

    def this_broker(self, dialled: Address) -> BrokerInfo:
        host, port = self.advertised
        return BrokerInfo(self.broker_id, host or dialled[0], port or dialled[1])

    def space(self) -> DiskSpace:
        """Return the size of the file system of the data directory, and what is free."""
        return self.disk.space(self.data_dir)
