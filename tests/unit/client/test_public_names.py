"""The public names stay, load lazily, and are the same with and without an event loop."""

import inspect
import subprocess
import sys

import pytest

import flymq
from flymq.client.aio.admin import AsyncAdmin
from flymq.client.sync.admin import Admin

PAIRS = [
    (flymq.AsyncFlyMQClient, flymq.FlyMQClient),
    (flymq.AsyncProducer, flymq.Producer),
    (flymq.AsyncConsumer, flymq.Consumer),
    (flymq.AsyncTransaction, flymq.Transaction),
    (AsyncAdmin, Admin),
]
# What the implementation offers to the facade and users do not call.
INNER = {"next_polled", "next_batch", "take_all", "close_after_fork", "consumed", "check_open"}


def public_methods(of: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(member)
        for name, member in vars(of).items()
        if inspect.isfunction(member) and not name.startswith("_") and name not in INNER
    }


@pytest.mark.parametrize(("asynchronous", "blocking"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_ways_have_the_same_methods_with_the_same_parameters(asynchronous, blocking):
    ours, theirs = public_methods(asynchronous), public_methods(blocking)
    assert set(ours) == set(theirs)
    for name, signature in ours.items():
        assert _parameters(signature) == _parameters(theirs[name]), name


def _parameters(signature: inspect.Signature) -> list[str]:
    """Return names, kinds, defaults and types; the blocking facade takes its own kind of consumer."""
    return [str(parameter).replace("AsyncConsumer", "Consumer") for parameter in signature.parameters.values()]


def test_the_exported_names_are_these():
    assert sorted(flymq.__all__) == [
        "Acks",
        "AsyncConsumer",
        "AsyncFlyMQClient",
        "AsyncProducer",
        "AsyncTransaction",
        "ClientMetrics",
        "Consumer",
        "ConsumerRecord",
        "Delivery",
        "FlyMQClient",
        "FlyMQClientPool",
        "FlyMQError",
        "Isolation",
        "MessageConsumer",
        "MessageProducer",
        "OffsetStore",
        "Producer",
        "ProducerRecord",
        "RebalanceListener",
        "RecordMetadata",
        "SqliteOffsets",
        "TopicPartition",
        "Transaction",
        "__version__",
        "errors",
        "generate_key",
        "serializers",
    ]


@pytest.mark.parametrize("name", flymq.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(flymq, name) is not None
    assert name in dir(flymq)


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = flymq.nonsense


def test_importing_the_package_loads_nothing_heavy():
    program = "import sys, flymq; print(sorted({'asyncio', 'msgspec', 'ssl', 'cryptography'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"
