"""The disk, and the log on it."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class StorageError(FlyMQError):
    """The disk refused an operation."""

    code = "STORAGE_ERROR"
    retriable = True
    hint = "See the broker's log for the file and the system's answer."


class DiskFull(StorageError):
    """No space is left on the disk."""

    code = "DISK_FULL"
    hint = "Free some space or lower the topics' retention, then restart the broker or reopen the partition."


class DiskPermissionDenied(StorageError):
    """The broker may not use this file."""

    code = "DISK_PERMISSION_DENIED"
    hint = "Give the broker's user read and write access to its data directory."


class FileVanished(StorageError):
    """A file of the log is no longer there."""

    code = "FILE_VANISHED"
    hint = "Something else removed it; restore the partition from a replica or a backup."


class DirectoryLocked(StorageError):
    """Another process uses this data directory."""

    code = "DIRECTORY_LOCKED"
    retriable = False
    hint = "Stop the other broker, or give this one its own --data-dir."


class PartitionOffline(StorageError):
    """The partition was taken offline after a failure of its disk."""

    code = "PARTITION_OFFLINE"
    hint = "The message says what failed; mend it and restart the broker or reopen the partition."


class CorruptLog(StorageError):
    """The log holds bytes that are not what was written."""

    code = "CORRUPT_LOG"
    retriable = False
    hint = "The file and position are in the message; restore the partition from a replica or a backup."


class FsyncFailed(StorageError):
    """The disk could not make written data durable; the broker stops."""

    code = "FSYNC_FAILED"
    retriable = False
    hint = "Check the disk before starting the broker again: after a failed fsync, cached data cannot be trusted."
