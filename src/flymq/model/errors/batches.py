"""Record batches that cannot be used."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class InvalidBatch(FlyMQError):
    """The bytes are not a valid record batch."""

    code = "INVALID_BATCH"
    hint = "The batch was altered or cut on its way; send it again from its records."


class CorruptBatch(InvalidBatch):
    """The batch does not match its checksum."""

    code = "CORRUPT_BATCH"
    hint = "The bytes changed after the checksum was made. On disk: restore the partition from a replica or a backup."


class UnsupportedBatchVersion(InvalidBatch):
    """The batch is of the old message format 0 or 1."""

    code = "UNSUPPORTED_BATCH_VERSION"
    hint = "Use a client that writes record batches of magic 2 (Kafka 0.11 and later)."


class EmptyBatch(InvalidBatch):
    """A batch needs at least one record."""

    code = "EMPTY_BATCH"
    hint = "Add a record before building the batch."


class UnsupportedCompression(InvalidBatch):
    """The batch names a compression that is not known."""

    code = "UNSUPPORTED_COMPRESSION"
    hint = "Use none, gzip, snappy, lz4 or zstd."


class DecompressedTooLarge(InvalidBatch):
    """The batch would unpack to more than is allowed."""

    code = "DECOMPRESSED_TOO_LARGE"
    hint = "Send smaller batches; a small batch that unpacks to a huge one is refused unread."
