"""Whose a connection is: each protocol knows its own first bytes, however few at a time they come."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flymq.gateways.kafka.handlers import HANDLERS as KAFKA_HANDLERS
from flymq.gateways.listener import Gateway, Listener, ListenerLimits
from flymq.gateways.native.connection import speaks_native
from flymq.gateways.rest.http.connection import speaks_http
from flymq.gateways.rest.schema.operation_table import OPERATIONS
from flymq.host.network import SystemNetwork
from flymq.host.tasks import Tasks
from flymq.wire.first_bytes import Speaks
from flymq.wire.kafka.framing import REQUEST_BYTES_MAX, speaks_kafka
from flymq.wire.native.codec import encode_request
from flymq.wire.native.messages.records import Produce
from flymq.wire.native.messages.session import Hello

PROTOCOLS = {"native": speaks_native, "http": speaks_http, "kafka": speaks_kafka}
METHODS = sorted({operation.method for operation in OPERATIONS} | {"HEAD", "OPTIONS"})

natives = st.one_of(st.just(Hello()), st.builds(Produce, st.text(max_size=20), st.binary(max_size=50) | st.none())).map(
    lambda request: bytes(encode_request(request))
)


@st.composite
def kafka_requests(draw: Any) -> bytes:
    """A length, an API key, a version, a correlation id, a client id, and whatever the body is."""
    api = draw(st.sampled_from(sorted(KAFKA_HANDLERS)))
    client_id = draw(st.text(max_size=10)).encode()
    head = api.to_bytes(2, "big") + draw(st.integers(0, 20)).to_bytes(2, "big")
    head += draw(st.integers(0, 1 << 31)).to_bytes(4, "big") + len(client_id).to_bytes(2, "big") + client_id
    body = draw(st.binary(max_size=100))
    length = draw(st.just(len(head) + len(body)) | st.integers(len(head), REQUEST_BYTES_MAX))
    return length.to_bytes(4, "big") + head + body


http_requests = st.builds(
    lambda method, path: f"{method} /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(),
    st.sampled_from(METHODS),
    st.text("abc/", max_size=10),
)
requests = st.one_of(
    natives.map(lambda data: ("native", data)),
    http_requests.map(lambda data: ("http", data)),
    kafka_requests().map(lambda data: ("kafka", data)),
)


def prefixes(data: bytes) -> list[bytes]:
    return [data[:size] for size in range(1, min(len(data), 64) + 1)]


@given(requests)
def test_a_protocol_never_disowns_its_own_request_and_knows_it_within_six_bytes(request: tuple[str, bytes]) -> None:
    protocol, data = request
    answers = [PROTOCOLS[protocol](first) for first in prefixes(data)]
    assert Speaks.NO not in answers
    assert Speaks.MORE not in answers[5:]


@given(requests)
def test_no_protocol_takes_the_request_of_another(request: tuple[str, bytes]) -> None:
    protocol, data = request
    for name, speaks in PROTOCOLS.items():
        if name != protocol:
            assert speaks(data) is Speaks.NO


@given(st.sampled_from(sorted(PROTOCOLS)), st.binary(min_size=1, max_size=16))
def test_what_a_protocol_has_decided_more_bytes_do_not_change(protocol: str, data: bytes) -> None:
    answers = [PROTOCOLS[protocol](first) for first in prefixes(data)]
    decided = [answer for answer in answers if answer is not Speaks.MORE]
    assert len(set(decided)) <= 1
    assert answers == [Speaks.MORE] * (len(answers) - len(decided)) + decided


@given(requests)
def test_the_listener_waits_for_more_and_then_chooses_the_right_protocol(request: tuple[str, bytes]) -> None:
    protocol, data = request
    chosen = [listener().choose(first) for first in prefixes(data)]
    undecided = [each for each in chosen if each is Speaks.MORE]
    assert chosen[: len(undecided)] == undecided
    assert {each.name for each in chosen[len(undecided) :] if isinstance(each, Gateway)} == {protocol}
    assert Speaks.NO not in chosen


def listener() -> Listener:
    def never() -> Any:
        raise AssertionError("nobody connects")

    gateways = [Gateway(name, speaks, never) for name, speaks in PROTOCOLS.items()]
    tasks = Tasks(lambda name, error: None)
    return Listener(gateways, None, ListenerLimits(), SystemNetwork(), tasks)  # type: ignore[arg-type]


@pytest.mark.parametrize("first", [b"\x16\x03\x01", b"AMQP", b"\x10\x0c", b"SSH-2.0-x", b"\xff\xff"])
def test_what_nobody_here_speaks_is_told_apart_from_what_somebody_does(first: bytes) -> None:
    assert listener().choose(first + bytes(16)) is Speaks.NO
