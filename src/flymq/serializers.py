"""Serializers and deserializers: text, JSON, MessagePack, msgspec and pydantic."""

from flymq.client.serializers import *  # noqa: F403  # this is the public name of that module
