"""FlyMQ: a distributed message queue for Python and data teams.

Public names are imported on first use, so `import flymq` is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from flymq import errors as errors
    from flymq import serializers as serializers
    from flymq.client.aio.client import AsyncFlyMQClient as AsyncFlyMQClient
    from flymq.client.aio.consumer import AsyncConsumer as AsyncConsumer
    from flymq.client.aio.consumer import RebalanceListener as RebalanceListener
    from flymq.client.aio.producer import AsyncProducer as AsyncProducer
    from flymq.client.aio.transaction import AsyncTransaction as AsyncTransaction
    from flymq.client.deliveries import Delivery as Delivery
    from flymq.client.encryption import generate_key as generate_key
    from flymq.client.kafka_style import MessageConsumer as MessageConsumer
    from flymq.client.kafka_style import MessageProducer as MessageProducer
    from flymq.client.kafka_style import ProducerRecord as ProducerRecord
    from flymq.client.metrics import ClientMetrics as ClientMetrics
    from flymq.client.offset_stores import OffsetStore as OffsetStore
    from flymq.client.offset_stores import SqliteOffsets as SqliteOffsets
    from flymq.client.records import ConsumerRecord as ConsumerRecord
    from flymq.client.records import RecordMetadata as RecordMetadata
    from flymq.client.sync.client import FlyMQClient as FlyMQClient
    from flymq.client.sync.consumer import Consumer as Consumer
    from flymq.client.sync.pool import FlyMQClientPool as FlyMQClientPool
    from flymq.client.sync.producer import Producer as Producer
    from flymq.client.sync.transaction import Transaction as Transaction
    from flymq.model.delivery import Acks as Acks
    from flymq.model.delivery import Isolation as Isolation
    from flymq.model.errors import FlyMQError as FlyMQError
    from flymq.model.names import TopicPartition as TopicPartition

_HOMES = {
    "Acks": "flymq.model.delivery",
    "AsyncConsumer": "flymq.client.aio.consumer",
    "AsyncFlyMQClient": "flymq.client.aio.client",
    "AsyncProducer": "flymq.client.aio.producer",
    "AsyncTransaction": "flymq.client.aio.transaction",
    "ClientMetrics": "flymq.client.metrics",
    "Consumer": "flymq.client.sync.consumer",
    "ConsumerRecord": "flymq.client.records",
    "Delivery": "flymq.client.deliveries",
    "FlyMQClient": "flymq.client.sync.client",
    "FlyMQClientPool": "flymq.client.sync.pool",
    "FlyMQError": "flymq.model.errors",
    "Isolation": "flymq.model.delivery",
    "MessageConsumer": "flymq.client.kafka_style",
    "MessageProducer": "flymq.client.kafka_style",
    "OffsetStore": "flymq.client.offset_stores",
    "Producer": "flymq.client.sync.producer",
    "ProducerRecord": "flymq.client.kafka_style",
    "RebalanceListener": "flymq.client.aio.consumer",
    "RecordMetadata": "flymq.client.records",
    "SqliteOffsets": "flymq.client.offset_stores",
    "TopicPartition": "flymq.model.names",
    "Transaction": "flymq.client.sync.transaction",
    "generate_key": "flymq.client.encryption",
}
_MODULES = ("errors", "serializers")

__all__ = [*_HOMES, *_MODULES, "__version__"]  # names from the tables above, all of them strings


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(f"flymq.{name}")
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'flymq' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
