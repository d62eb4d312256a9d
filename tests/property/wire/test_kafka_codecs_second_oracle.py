"""A second opinion on every response: kafka-python reads it, writes it again, and the bytes are the same."""

import warnings
from importlib import import_module
from pkgutil import walk_packages
from random import Random
from typing import Any, get_type_hints

import pytest
from tests.property.wire.kio_messages import kio_class, random_message, to_ours

from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import encode_response, messages_of

ROUNDS = 3

with warnings.catch_warnings():  # it reads its schemas in an old-fashioned way
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol

    THEIRS: dict[str, Any] = {}
    for found in walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in found.name and "generate" not in found.name:
            THEIRS |= vars(import_module(found.name))


def their_class(api: Api) -> Any:
    return THEIRS.get("".join(word.title() for word in api.name.split("_")) + "Response")


EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api, versions in CODECS.items()
    if their_class(api) is not None
    for version in range(versions.first, versions.last + 1)
    if their_class(api).min_version <= version <= their_class(api).max_version
]


def test_kafka_python_has_an_opinion_on_most_of_what_is_served():
    assert len(EVERY_VERSION) >= 150


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_kafka_python_reads_and_writes_the_same_response(api, version):
    chance = Random(f"{api}-{version}")
    ours = get_type_hints(messages_of(api).encode_response)["value"]
    for _ in range(ROUNDS):
        response = to_ours(random_message(kio_class(api, version, "response"), chance), ours)
        if api is Api.API_VERSIONS:
            response.error_code = 0  # with an error, clients take the rest for version 0
        frame = b"".join(encode_response(api, version, 7, response))  # type: ignore[arg-type]  # no bodies elsewhere
        theirs = their_class(api).decode(frame, version=version, header=True, framed=True)
        assert bytes(theirs.encode(header=True, framed=True)) == frame
