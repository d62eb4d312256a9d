"""Record batches that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence

from flymq.model.errors.base import FlyMQError


class InvalidBatch(FlyMQError):
    """The bytes are not a valid record batch."""

    code = "INVALID_BATCH"
    hint = "The batch was modified or truncated in transit; encode its records again and resend."


class InvalidRecord(InvalidBatch):
    """A record of the batch is invalid; nothing of the batch was written."""

    code = "INVALID_RECORD"
    hint = "Correct or leave out the records named, and send the others again."

    def __init__(self, message: str = "", *, hint: str | None = None, indexes: Sequence[int] = ()) -> None:
        super().__init__(message, hint=hint)
        self.indexes = indexes
        """The positions in the batch, from 0, of the invalid records."""


class KeyRequired(InvalidRecord):
    """A record of a compacted topic needs a key."""

    code = "KEY_REQUIRED"
    hint = "Give every record a key, or set the topic's cleanup.policy to delete."


class InvalidTimestamp(InvalidRecord):
    """The time of a record lies too far in the past or in the future for its topic."""

    code = "INVALID_TIMESTAMP"
    hint = "Send times in milliseconds since 1970; the topic's message.timestamp.*.max.ms say what it accepts."


class CorruptBatch(InvalidBatch):
    """The batch does not match its checksum."""

    code = "CORRUPT_BATCH"
    hint = "The bytes changed after the checksum was set. On disk: restore the partition from a replica or a backup."


class UnsupportedBatchVersion(InvalidBatch):
    """The batch uses the old message format 0 or 1."""

    code = "UNSUPPORTED_BATCH_VERSION"
    hint = "Use a client that writes record batches with magic 2 (Kafka 0.11 and later)."


class EmptyBatch(InvalidBatch):
    """A batch needs at least one record."""

    code = "EMPTY_BATCH"
    hint = "Add a record before building the batch."


class UnsupportedCompression(InvalidBatch):
    """The batch uses an unknown compression codec."""

    code = "UNSUPPORTED_COMPRESSION"
    hint = "Use none, gzip, snappy, lz4 or zstd."


class DecompressedTooLarge(InvalidBatch):
    """The batch would exceed the size limit when decompressed."""

    code = "DECOMPRESSED_TOO_LARGE"
    hint = "Send smaller batches; a small batch that decompresses to a huge one is rejected without reading it."
