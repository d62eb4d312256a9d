"""The SDK: values, serializers and closed objects."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class ClientClosed(FlyMQError):
    """The client is closed."""

    code = "CLIENT_CLOSED"
    hint = "Use it within its `with` block, or before `close()`."


class NotSubscribed(FlyMQError):
    """The consumer is not subscribed to any topic."""

    code = "NOT_SUBSCRIBED"
    hint = "Call subscribe(['topic']) first."


class SerializationFailed(FlyMQError):
    """A value could not be serialized."""

    code = "SERIALIZATION_FAILED"
    hint = "Check the value against the configured serializer."


class UnreadableRecord(FlyMQError):
    """A record cannot be decoded; the fields say which one, and hold its raw bytes."""

    code = "UNREADABLE_RECORD"
    hint = "Inspect the record; seek to the next offset to skip it."
    topic: str = ""
    partition: int = -1
    offset: int = -1
    key: bytes | None = None
    value: bytes | None = None


class UnreadableBatch(UnreadableRecord):
    """A batch of records cannot be decoded: those from `offset` to before `next_offset` are lost to this reader."""

    code = "UNREADABLE_BATCH"
    hint = "To go on without it, pass the error to the consumer's `skip`, or set on_corrupt_batch='skip'."
    next_offset: int = -1
    """-1: not even the end of the batch is known."""


class DeserializationFailed(UnreadableRecord):
    """The deserializer rejected a record."""

    code = "DESERIALIZATION_FAILED"
    hint = "The record was written with another serializer; seek past it, or read it without a deserializer."


class WrongEncryptionKey(UnreadableRecord):
    """The message was encrypted with a key that this client does not have."""

    code = "WRONG_ENCRYPTION_KEY"
    hint = "Add the old key to `decryption_keys`."


class AlteredMessage(UnreadableRecord):
    """The encrypted message was modified after it was written."""

    code = "ALTERED_MESSAGE"
    hint = "Do not trust the message: its authentication tag does not match."


class NotEncrypted(UnreadableRecord):
    """The message is not encrypted, though this client has an encryption key."""

    code = "NOT_ENCRYPTED"
    hint = "Set encryption_required=False to read messages from before encryption was enabled."
