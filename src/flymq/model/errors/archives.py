"""Archives: topics as files."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class ArchiveError(FlyMQError):
    """An archive could not be read or written."""

    code = "ARCHIVE_ERROR"
    hint = "The message names the file; check that there is room and that this user may write there, then resume."


class ArchiveNotFound(ArchiveError):
    """There is no archive in this folder."""

    code = "ARCHIVE_NOT_FOUND"
    hint = "Name the folder that `flymq pipeline archive --to` was given."


class ArchiveDamaged(ArchiveError):
    """A file of the archive is missing, cut short or altered."""

    code = "ARCHIVE_DAMAGED"
    hint = "Bring the file back from a copy of the archive; restore other topics or an earlier time without it."


class ArchiveTooNew(ArchiveError):
    """The archive was written by a newer FlyMQ."""

    code = "ARCHIVE_TOO_NEW"
    hint = "Read it with the version that wrote it, or a newer one."


class ArchiveInUse(ArchiveError):
    """Another job writes to this archive."""

    code = "ARCHIVE_IN_USE"
    hint = "Wait for it or stop it (`flymq pipeline list`), or archive into another folder."


class NotInArchive(ArchiveError):
    """The archive does not hold what was asked for."""

    code = "NOT_IN_ARCHIVE"
    hint = "`flymq pipeline restore ARCHIVE --dry-run` shows what it holds."


class TargetNotEmpty(FlyMQError):
    """The topic to restore into has records already."""

    code = "TARGET_NOT_EMPTY"
    hint = "Restore into another topic with --to, or add behind what is there with --append."


class TargetDisturbed(FlyMQError):
    """Somebody else has written to the topic that is being restored."""

    code = "TARGET_DISTURBED"
    hint = "Stop the other producers, delete the topic and restore again."
