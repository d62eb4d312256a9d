"""Archives: topics as files."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class ArchiveError(FlyMQError):
    """An archive could not be read or written."""

    code = "ARCHIVE_ERROR"
    hint = "The message names the file; check free disk space and write permissions, then resume."


class ArchiveNotFound(ArchiveError):
    """There is no archive in this directory."""

    code = "ARCHIVE_NOT_FOUND"
    hint = "Pass the directory that was given to `flymq pipeline archive --to`."


class ArchiveDamaged(ArchiveError):
    """A file of the archive is missing, truncated or modified."""

    code = "ARCHIVE_DAMAGED"
    hint = "Recover the file from a copy of the archive; other topics and earlier times can be restored without it."


class ArchivePathOutside(ArchiveError):
    """An archive or backup names a file outside its directory."""

    code = "ARCHIVE_PATH_OUTSIDE"
    hint = "Do not use it unless you know who wrote it: FlyMQ only writes relative paths below `data/`, and no links."


class ArchiveTooNew(ArchiveError):
    """The archive was written by a newer version of FlyMQ."""

    code = "ARCHIVE_TOO_NEW"
    hint = "Read it with the version that wrote it, or a later one."


class ArchiveInUse(ArchiveError):
    """Another job is writing to this archive."""

    code = "ARCHIVE_IN_USE"
    hint = "Wait for it or stop it (`flymq pipeline list`), or archive to another directory."


class NotInArchive(ArchiveError):
    """The archive does not contain what was requested."""

    code = "NOT_IN_ARCHIVE"
    hint = "`flymq pipeline restore ARCHIVE --dry-run` shows what it contains."


class TargetNotEmpty(FlyMQError):
    """The topic to restore into already has records."""

    code = "TARGET_NOT_EMPTY"
    hint = "Restore into another topic with --to, or append to the existing records with --append."


class TargetDisturbed(FlyMQError):
    """Another producer wrote to the topic while it was being restored."""

    code = "TARGET_DISTURBED"
    hint = "Stop the other producers, delete the topic and restore again."
