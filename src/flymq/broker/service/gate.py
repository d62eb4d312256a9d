"""Authorization: the one place that decides what a caller may do, for every protocol.

Internal topics are only written by the broker: no client may produce to them, or change, truncate or delete them.
"""

from __future__ import annotations

from enum import Enum

from flymq.broker.service.caller import Caller
from flymq.model.errors import TopicIsInternal
from flymq.model.names import INTERNAL_PREFIX


class Operation(Enum):
    """An operation on a resource, named as in Kafka's ACLs."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    ALTER_CONFIGS = "alter_configs"
    DESCRIBE_CONFIGS = "describe_configs"
    IDEMPOTENT_WRITE = "idempotent_write"
    CLUSTER_ACTION = "cluster_action"
    """What brokers ask of each other."""


class Resource(Enum):
    """The types of resources."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional_id"
    CLUSTER = "cluster"


CLUSTER_NAME = "flymq"
"""The name of the only resource of the type CLUSTER."""

_CHANGES = frozenset((Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS))


class Gate:
    """Authorizes calls. Every call of the service is checked here first."""

    def check(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> None:
        """Raise an error unless the caller is authorized."""
        if resource is Resource.TOPIC and operation in _CHANGES and name.startswith(INTERNAL_PREFIX):
            raise TopicIsInternal(f"the topic {name!r} is internal: only the broker can write to it")

    def check_write(self, caller: Caller, topic: str) -> None:
        """Raise an error unless the caller may produce to the topic. Like `check`, for the hot path."""
        if topic.startswith(INTERNAL_PREFIX):
            raise TopicIsInternal(f"the topic {topic!r} is internal: only the broker can write to it")

    def check_read(self, caller: Caller, topic: str) -> None:
        """Raise an error unless the caller may read the topic. Like `check`, for the hot path."""
