"""From a program's values to bytes and back: text, JSON, MessagePack, msgspec and pydantic."""

from flymq.client.serializers import *  # noqa: F403  # this is the public name of that module
