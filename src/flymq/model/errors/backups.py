"""What can be wrong with a backup."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class BackupNotFound(FlyMQError):
    """There is no complete backup in this directory."""

    code = "BACKUP_NOT_FOUND"
    hint = "`flymq backup list DIR` lists the backups of a directory; an incomplete one cannot be restored."


class BackupExists(FlyMQError):
    """A backup with this name already exists."""

    code = "BACKUP_EXISTS"
    hint = "Use another --name; a backup is never overwritten."


class BackupDamaged(FlyMQError):
    """The backup was modified or damaged after it was created."""

    code = "BACKUP_DAMAGED"
    hint = "`flymq backup verify` lists what is wrong. Use another backup."
