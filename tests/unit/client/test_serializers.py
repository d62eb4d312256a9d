"""Values become bytes and come back as they were."""

from dataclasses import dataclass

import msgspec
import pydantic
import pytest

from flymq.client import serializers
from flymq.model.errors import DeserializationFailed, SerializationFailed


class Order(msgspec.Struct):
    number: int
    items: list[str]


@dataclass
class Address:
    street: str


class Customer(pydantic.BaseModel):
    name: str


@pytest.mark.parametrize(
    ("serializer", "deserializer", "value"),
    [
        (serializers.to_text, serializers.from_text, "Grüße"),
        (serializers.to_json, serializers.from_json, {"a": [1, None, "x"]}),
        (serializers.to_msgpack, serializers.from_msgpack, {"a": b"bytes"}),
        (serializers.to_json, serializers.json_of(Order), Order(1, ["tea"])),
        (serializers.to_msgpack, serializers.msgpack_of(Order), Order(2, [])),
        (serializers.to_json, serializers.json_of(Address), Address("Main Street")),
        (serializers.pydantic_to_json, serializers.pydantic_of(Customer), Customer(name="Ada")),
    ],
)
def test_what_goes_in_comes_out(serializer, deserializer, value):
    assert serializers.deserialize(deserializer, serializers.serialize(serializer, value)) == value


def test_none_stays_null_and_no_serializer_sees_it():
    assert serializers.serialize(serializers.to_json, None) is None
    assert serializers.deserialize(serializers.from_json, None) is None


def test_a_serialization_error_names_the_function_and_the_type():
    with pytest.raises(SerializationFailed, match=r"Encoder\.encode failed on a object"):
        serializers.serialize(serializers.to_json, object())
    with pytest.raises(DeserializationFailed, match="failed on 7 bytes"):
        serializers.deserialize(serializers.json_of(Order), b'{"a":1}')
    with pytest.raises(DeserializationFailed):
        serializers.deserialize(serializers.pydantic_of(Customer), b"{}")
