"""What other brokers of the cluster may do, and clients may not: copy partitions."""

from __future__ import annotations

import hmac

from flymq.broker.replicas.replica_sessions import Position as Position
from flymq.broker.replicas.replica_sessions import ReplicaId as ReplicaId
from flymq.broker.replicas.replica_sessions import ReplicaRead as ReplicaRead
from flymq.broker.replicas.replica_sessions import ReplicaSession as ReplicaSession
from flymq.broker.replicas.replicas import Replicas
from flymq.broker.service.caller import Caller
from flymq.cluster.image import Image
from flymq.host.clock import Clock
from flymq.model.errors import NotAPeer


class OtherBrokers:
    """Operations of the other brokers of the cluster."""

    def __init__(self, image: Image, replicas: Replicas, clock: Clock) -> None:
        self._image = image
        self._replicas = replicas
        self._clock = clock
        self.bytes_copied = 0
        """Bytes of record batches that other brokers have copied."""

    def join(self, caller: Caller, broker_id: int, epoch: int, secret: str) -> ReplicaSession:
        """Accept a connection of another broker; return the session in which it copies partitions."""
        broker = self._image.members.find(broker_id)
        is_known = broker is not None and broker.epoch == epoch
        if (
            broker is None
            or not is_known
            or not hmac.compare_digest(broker.registration.secret.encode(), secret.encode())
        ):
            raise NotAPeer(f"broker {broker_id} with the epoch {epoch} is not known to this broker")
        return ReplicaSession(broker_id, epoch, self._replicas.get_by_id, self._clock)
