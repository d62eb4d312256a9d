"""What a client sent, and what it may not ask for."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class InvalidRequest(FlyMQError):
    """The request has a wrong or missing field."""

    code = "INVALID_REQUEST"
    hint = "Check the field named in the message against docs/formats/native-protocol.md."


class BrokenFrame(FlyMQError):
    """The bytes on the connection are not a FlyMQ frame."""

    code = "BROKEN_FRAME"
    hint = "A frame starts with 0xFB 0x01; check that the client speaks the protocol it was configured for."


class UnsupportedVersion(FlyMQError):
    """This version of the protocol is not spoken here."""

    code = "UNSUPPORTED_VERSION"
    hint = "Use a client of the same major version as the broker."


class UnknownOpcode(FlyMQError):
    """This operation is not known here."""

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
    """The topic's name is not allowed."""

    code = "INVALID_TOPIC_NAME"
    hint = "Use 1 to 249 letters, digits, '.', '_' or '-'; not '.' or '..'."


class InvalidSetting(FlyMQError):
    """A setting has a value that is not allowed."""

    code = "INVALID_SETTING"
    hint = "Correct the value that the message names."


class InvalidPartitions(FlyMQError):
    """The number of partitions is not allowed."""

    code = "INVALID_PARTITIONS"
    hint = "Partitions can be added, never taken away, within `limits.topic_partitions_max`."


class InvalidReplicationFactor(FlyMQError):
    """There are not enough brokers for this replication factor."""

    code = "INVALID_REPLICATION_FACTOR"
    hint = "Use a replication factor of at most the number of brokers."


class ListenFailed(FlyMQError):
    """The broker cannot listen on this address."""

    code = "LISTEN_FAILED"
    hint = "Use an address of this machine for `listener.host`; ports below 1024 need special rights."


class AddressInUse(ListenFailed):
    """Another program listens on this port."""

    code = "ADDRESS_IN_USE"
    hint = "Stop the other program, or use another port: `--port N`, or `--port 0` for any free one."


class InternalError(FlyMQError):
    """The broker met a fault of its own."""

    code = "INTERNAL_ERROR"
    hint = "The broker's log has the details; please report them."
