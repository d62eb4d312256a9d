"""The disk, and the log on it."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class StorageError(FlyMQError):
    """A disk operation failed."""

    code = "STORAGE_ERROR"
    retriable = True
    hint = "See the broker's log for the file and the operating system's error."


class DiskFull(StorageError):
    """No space left on the disk."""

    code = "DISK_FULL"
    hint = "Free some space or lower the topics' retention, then restart the broker or reopen the partition."


class DiskPermissionDenied(StorageError):
    """The broker has no permission for this file."""

    code = "DISK_PERMISSION_DENIED"
    hint = "Give the broker's user read and write access to its data directory."


class FileVanished(StorageError):
    """A file of the log is missing."""

    code = "FILE_VANISHED"
    hint = "Another program removed it. Put it back, or stop the broker and run `flymq repair check`."


class DirectoryLocked(StorageError):
    """Another process is using this data directory."""

    code = "DIRECTORY_LOCKED"
    retriable = False
    hint = "Stop the other broker, or give this one its own --data-dir."


class PartitionOffline(StorageError):
    """The partition is offline: a write failed, or its log could not be opened."""

    code = "PARTITION_OFFLINE"
    hint = "The message says what failed. Fix it, with flymq repair if the log is damaged, and restart the broker."


class CorruptLog(StorageError):
    """The log is corrupt: it does not contain the bytes that were written."""

    code = "CORRUPT_LOG"
    retriable = False
    hint = "Stop the broker and run `flymq repair check`."


class FsyncFailed(StorageError):
    """fsync failed: written data may not be durable; the broker stops."""

    code = "FSYNC_FAILED"
    retriable = False
    hint = "Check the disk before restarting the broker: after a failed fsync, the page cache cannot be trusted."


class DataDirectoryMissing(StorageError):
    """There is no broker's data in this directory."""

    code = "DATA_DIRECTORY_MISSING"
    retriable = False
    hint = "Give the broker's data directory with --data-dir."


class UncleanShutdown(StorageError):
    """The broker was not shut down cleanly."""

    code = "UNCLEAN_SHUTDOWN"
    retriable = False
    hint = "Start the broker once and stop it with SIGTERM or Ctrl-C, then repair."
