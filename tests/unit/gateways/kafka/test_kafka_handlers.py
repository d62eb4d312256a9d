"""Requests are served by functions that are there, and loaded when they are needed."""

import subprocess
import sys

import pytest

from flymq.gateways.kafka.handlers import HANDLERS, LATER, load
from flymq.wire.kafka.apis import CODECS


@pytest.mark.parametrize("name", LATER.values())
def test_what_is_loaded_later_is_there(name):
    assert callable(load(name))


def test_every_request_whose_bytes_are_known_is_served():
    assert set(HANDLERS) == set(CODECS)


def test_a_broker_that_starts_loads_only_the_messages_of_the_hot_path():
    program = (
        "import sys, flymq.gateways.kafka.handlers; print(*(m for m in sys.modules if 'wire.kafka.messages.' in m))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert {name.rpartition(".")[2] for name in loaded.split()} == {"produce", "fetch"}
