"""One broker: its components, for the server around it. Gateways use `service` only."""

from __future__ import annotations

from dataclasses import dataclass

from flymq.broker.admin import Admin
from flymq.broker.coordinators.groups import Groups
from flymq.broker.coordinators.set_aside import SetAside
from flymq.broker.coordinators.transactions import Transactions
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.service import Service
from flymq.cluster.image import Image
from flymq.host.clock import Clock
from flymq.storage.flusher import Flusher
from flymq.storage.headroom import Headroom
from flymq.storage.steady_clock import SteadyClock


@dataclass(frozen=True, slots=True)
class Broker:
    service: Service
    image: Image
    replicas: Replicas
    flusher: Flusher
    admin: Admin
    groups: Groups
    transactions: Transactions
    set_aside: SetAside
    headroom: Headroom
    steady_clock: SteadyClock
    """For what deletes by age."""
    clock: Clock
