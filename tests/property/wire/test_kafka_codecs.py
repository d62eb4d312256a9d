"""Every message of every version served is what another implementation of the protocol says it is."""

from random import Random
from typing import get_type_hints

import pytest
from tests.property.wire.kio_messages import kio_bytes, kio_class, kio_parse, random_message, to_ours

from flymq.model.errors import InvalidRequest
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import begin_response, messages_of, parse_request
from flymq.wire.kafka.framing import RESPONSE_HEAD_SIZE
from flymq.wire.kafka.values import CompactWriter

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api, versions in CODECS.items()
    for version in range(versions.first, versions.last + 1)
]
ROUNDS = 12


def body_of(api: Api, version: int, request: object) -> bytes:
    """Return a request as it stands behind its client id: in compact versions tags come first, here one unknown."""
    unknown_tag = b"\x01\x63\x03abc"
    return (unknown_tag if version >= messages_of(api).COMPACT_FROM else b"") + kio_bytes(request)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_request_is_read_as_the_other_implementation_wrote_it(api, version):
    chance = Random(f"{api}-{version}")
    ours = get_type_hints(messages_of(api).parse_request)["return"]
    for _ in range(ROUNDS):
        request = random_message(kio_class(api, version, "request"), chance)
        raw = body_of(api, version, request)
        assert parse_request(api, version, memoryview(b"head" + raw), 4) == to_ours(request, ours)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_response_is_read_by_the_other_implementation_as_we_wrote_it(api, version):
    chance = Random(f"{api}-{version}")
    cls = kio_class(api, version, "response")
    ours = get_type_hints(messages_of(api).encode_response)["value"]
    for _ in range(ROUNDS):
        response = random_message(cls, chance)
        writer = begin_response(api, version)
        messages_of(api).encode_response(writer, to_ours(response, ours), version)
        has_tags_in_head = isinstance(writer, CompactWriter) and api is not Api.API_VERSIONS
        raw = bytes(writer[RESPONSE_HEAD_SIZE + has_tags_in_head :])
        assert kio_parse(cls, raw) == response
        assert raw == kio_bytes(response)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_damaged_request_is_read_or_refused_by_name(api, version):
    chance = Random(f"{api}-{version}")
    for _ in range(ROUNDS):
        raw = bytearray(body_of(api, version, random_message(kio_class(api, version, "request"), chance)))
        for _ in range(chance.randint(0, 4) if raw else 0):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        del raw[chance.randrange(len(raw) + 1) :]
        try:
            parse_request(api, version, memoryview(bytes(raw)), 0)
        except InvalidRequest:
            continue
