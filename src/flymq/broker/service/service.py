"""The broker as a gateway sees it: who it is, and its rooms."""

from __future__ import annotations

from dataclasses import dataclass, field

from flymq.broker.access.login import Access
from flymq.broker.admin import Admin
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.producer_ids import ProducerIds
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.replicas import Topics
from flymq.broker.service.traffic import Traffic
from flymq.host.clock import Clock
from flymq.host.tasks import Tasks


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The most a fetch gets, whatever it asks for."""

    wait_ms_max: int = 60_000
    bytes_max: int = 50 << 20


@dataclass(slots=True)
class Broker:
    broker_id: int
    cluster_id: str
    topics: Topics
    admin: Admin
    groups: Groups
    transactions: Transactions
    producer_ids: ProducerIds
    access: Access
    fetch_limits: FetchLimits
    clock: Clock
    tasks: Tasks
    advertised: tuple[str | None, int | None] = (None, None)
    """Host and port that clients are told; None tells each client the address it dialled."""
    traffic: Traffic = field(default_factory=Traffic)
