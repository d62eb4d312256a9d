"""Values and objects on the client's side."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class ClientClosed(FlyMQError):
    """The client has been closed."""

    code = "CLIENT_CLOSED"
    hint = "Use it within its `with` block, or before `close()`."


class NotSubscribed(FlyMQError):
    """The consumer reads nothing yet."""

    code = "NOT_SUBSCRIBED"
    hint = "Call subscribe(['topic']) first."


class SerializationFailed(FlyMQError):
    """A value could not be turned into bytes."""

    code = "SERIALIZATION_FAILED"
    hint = "Check the value against the serializer that was set."


class UnreadableRecord(FlyMQError):
    """A record that was read cannot be turned into a value; the fields say which one, and what its bytes are."""

    code = "UNREADABLE_RECORD"
    hint = "Look at the record; seek to the offset after it to go on."
    topic: str = ""
    partition: int = -1
    offset: int = -1
    key: bytes | None = None
    value: bytes | None = None


class DeserializationFailed(UnreadableRecord):
    """The deserializer refused a record's bytes."""

    code = "DESERIALIZATION_FAILED"
    hint = "The record was written with another serializer; seek past it, or read it without a deserializer."


class WrongEncryptionKey(UnreadableRecord):
    """The message was encrypted with a key this client does not have."""

    code = "WRONG_ENCRYPTION_KEY"
    hint = "Add the key that was used then to `decryption_keys`."


class AlteredMessage(UnreadableRecord):
    """The encrypted message was altered after it was written."""

    code = "ALTERED_MESSAGE"
    hint = "Do not trust it: someone or something changed its bytes."


class NotEncrypted(UnreadableRecord):
    """The message is not encrypted, though this client has an encryption key."""

    code = "NOT_ENCRYPTED"
    hint = "Set encryption_required=False to read messages from before encryption was turned on."
