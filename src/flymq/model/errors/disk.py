"""The disk, and the log on it."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class StorageError(FlyMQError):
    """A disk operation failed."""

    code = "STORAGE_ERROR"
    retriable = True
    hint = "See the broker's log for the file and the operating system's error."


class ResourcesExhausted(StorageError):
    """The broker ran out of disk space or file descriptors; writes succeed again when there are some."""

    code = "RESOURCES_EXHAUSTED"
    hint = "Retry later; the broker's /health says what it lacks."


class DiskFull(ResourcesExhausted):
    """No space left on the disk."""

    code = "DISK_FULL"
    hint = "Free some space, delete topics or lower their retention. Writes continue by themselves when there is room."


class TooManyOpenFiles(ResourcesExhausted):
    """The broker has no free file descriptor."""

    code = "TOO_MANY_OPEN_FILES"
    hint = "Raise the limit of open files (LimitNOFILE= of a systemd unit, ulimit -n), or close connections."


class DiskPermissionDenied(StorageError):
    """The broker has no permission for this file."""

    code = "DISK_PERMISSION_DENIED"
    hint = "Give the broker's user read and write access to its data directory."


class FileVanished(StorageError):
    """A file of the log is missing."""

    code = "FILE_VANISHED"
    hint = "Another program removed it. Put it back, or stop the broker and run `flymq repair check`."


class PartitionMissing(StorageError):
    """The files of a partition are gone."""

    code = "PARTITION_MISSING"
    retriable = False
    hint = (
        "Put its folder back or restore it from a backup, or delete the topic. To go on without its records, stop the "
        "broker and run `flymq repair catalog --recreate-missing`."
    )


class DirectoryLocked(StorageError):
    """Another process is using this data directory."""

    code = "DIRECTORY_LOCKED"
    retriable = False
    hint = "Stop the other broker, or give this one its own --data-dir."


class ForeignDataDirectory(StorageError):
    """The data directory belongs to another broker or to another cluster."""

    code = "FOREIGN_DATA_DIRECTORY"
    retriable = False
    hint = (
        "Give this broker its own --data-dir, or start it with the --id and the metadata store of the directory. If "
        "nothing in the directory is needed any more, empty it: the broker then copies its replicas from others."
    )


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
