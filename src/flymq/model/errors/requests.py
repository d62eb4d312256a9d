"""What a client sent, and what it may not ask for."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class InvalidRequest(FlyMQError):
    """A field of the request is invalid or missing."""

    code = "INVALID_REQUEST"
    hint = "Check the field named in the message against docs/formats/native-protocol.md."


class BrokenFrame(FlyMQError):
    """The bytes on the connection are not a FlyMQ frame."""

    code = "BROKEN_FRAME"
    hint = "A frame starts with 0xFB 0x01; check which protocol the client is configured for."


class UnsupportedVersion(FlyMQError):
    """This protocol version is not supported."""

    code = "UNSUPPORTED_VERSION"
    hint = "Use a client of the same major version as the broker."


class UnknownOpcode(FlyMQError):
    """The opcode is not known."""

    code = "UNKNOWN_OPCODE"
    hint = "The broker may be older than the client; upgrade the broker."


class RequestTooLarge(FlyMQError):
    """The request is larger than the broker accepts."""

    code = "REQUEST_TOO_LARGE"
    hint = "Send smaller batches, or raise `limits.request_bytes_max`."


class MessageTooLarge(FlyMQError):
    """The batch is larger than the topic accepts."""

    code = "MESSAGE_TOO_LARGE"
    hint = "Send a smaller message, or raise the topic's `max.message.bytes`."


class InvalidTopicName(FlyMQError):
    """The topic name is not valid."""

    code = "INVALID_TOPIC_NAME"
    hint = "Use 1 to 249 letters, digits, '.', '_' or '-'; not '.' or '..'."


class InvalidSetting(FlyMQError):
    """The value of a setting is not valid."""

    code = "INVALID_SETTING"
    hint = "Correct the value named in the message."


class InvalidPartitions(FlyMQError):
    """The number of partitions is not valid."""

    code = "INVALID_PARTITIONS"
    hint = "Partitions can be added, never removed, up to `limits.topic_partitions_max`."


class InvalidReplicationFactor(FlyMQError):
    """The replication factor exceeds the number of brokers."""

    code = "INVALID_REPLICATION_FACTOR"
    hint = "Lower the replication factor, or add brokers."


class ListenFailed(FlyMQError):
    """The broker cannot listen on this address."""

    code = "LISTEN_FAILED"
    hint = "Use an address of this machine for `listener.host`; ports below 1024 need extra privileges."


class AddressInUse(ListenFailed):
    """The port is already in use."""

    code = "ADDRESS_IN_USE"
    hint = "Stop the other program, or use another port: `--port N`, or `--port 0` for any free port."


class InternalError(FlyMQError):
    """Internal broker error."""

    code = "INTERNAL_ERROR"
    hint = "See the broker's log for the details, and please report them."
