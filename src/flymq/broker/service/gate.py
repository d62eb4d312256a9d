"""What a caller may do. The one place that decides it, for every protocol.

Internal topics are written by the broker alone: whoever asks, they are not produced to, changed, cut or deleted.
"""

from __future__ import annotations

from enum import Enum

from flymq.broker.service.caller import Caller
from flymq.model.errors import TopicIsInternal
from flymq.model.names import INTERNAL_PREFIX


class Operation(Enum):
    """What is done to a resource. The names are those of Kafka's ACLs."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    ALTER_CONFIGS = "alter_configs"
    DESCRIBE_CONFIGS = "describe_configs"
    IDEMPOTENT_WRITE = "idempotent_write"


class Resource(Enum):
    """The kinds of things that can be asked for."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"


CLUSTER_NAME = "flymq"
"""The name of the one resource of the kind CLUSTER."""

_CHANGES = frozenset((Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS))


class Gate:
    """Decides. Every call of the service passes here before anything else happens."""

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        """Raise unless the caller may do this."""
        if resource is Resource.TOPIC and operation in _CHANGES and name.startswith(INTERNAL_PREFIX):
            raise TopicIsInternal(f"the topic {name!r} is internal: only the broker writes it")

    def check_write(self, caller: Caller, topic: str) -> None:
        """Raise unless the caller may produce to the topic. As `check`, for the hot path."""
        if topic.startswith(INTERNAL_PREFIX):
            raise TopicIsInternal(f"the topic {topic!r} is internal: only the broker writes it")

    def check_read(self, caller: Caller, topic: str) -> None:
        """Raise unless the caller may read the topic. As `check`, for the hot path."""
