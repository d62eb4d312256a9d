"""A real broker for your tests, in the same process, on a free port.

    from flymq.testing import running_broker

    with running_broker() as broker:
        client = FlyMQClient(broker.address)

With pytest, ask for the fixture `flymq_broker`; it comes with the package.
"""

from flymq.testing.broker import TestBroker, running_broker

__all__ = ["TestBroker", "running_broker"]
