"""The metadata store."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class MetadataError(FlyMQError):
    """The metadata store could not do what was asked."""

    code = "METADATA_ERROR"
    hint = "See the broker's log for what the store answered."


class MetadataUnavailable(MetadataError):
    """The metadata store cannot be reached; nothing was changed."""

    code = "METADATA_UNAVAILABLE"
    retriable = True
    hint = "Try again; if it lasts, check the metadata store and the way to it."


class IndeterminateResult(MetadataError):
    """The metadata store may or may not have made the change: its answer was lost."""

    code = "INDETERMINATE_RESULT"
    hint = "Read the keys again to learn whether the change was made; do not repeat it blindly."


class RevisionCompacted(MetadataError):
    """The metadata store has forgotten the changes since this revision."""

    code = "REVISION_COMPACTED"
    hint = "Read everything again and watch from the revision that read came with."


class SessionEnded(MetadataError):
    """The session has ended and its keys are gone."""

    code = "SESSION_ENDED"
    hint = "Open a new session and write its keys again."


class InvalidTxn(MetadataError):
    """The metadata transaction breaks a rule every engine has to keep."""

    code = "INVALID_TXN"
    hint = "Split it, or name each key once; the message says which rule was broken."


class CorruptMetadata(MetadataError):
    """The metadata file is damaged, or is not one of FlyMQ's."""

    code = "CORRUPT_METADATA"
    hint = "Restore the file from a backup. It knows the topics; their records lie beside it and are not touched."


class MetadataTooNew(MetadataError):
    """The metadata file was written by a newer FlyMQ."""

    code = "METADATA_TOO_NEW"
    hint = "Start the newer version again, or restore the file from a backup made before the upgrade."
