"""A real broker for your tests, in the same process, on a free port.

    from flymq.testing import running_broker

    with running_broker() as broker:
        client = FlyMQClient(broker.address)

With pytest, use the fixture `flymq_broker`; the package installs it as a plugin.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flymq.testing.broker import TestBroker, running_broker

__all__ = ["TestBroker", "running_broker"]


def __getattr__(name: str) -> Any:
    """Import the broker on first use: the pytest plugin is in the same package and must load fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flymq.testing import broker

    return getattr(broker, name)
