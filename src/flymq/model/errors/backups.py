"""What can be wrong with a backup."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class BackupNotFound(FlyMQError):
    """There is no finished backup in this folder."""

    code = "BACKUP_NOT_FOUND"
    hint = "flymq backup list DIR shows those in a folder; one that was cut short cannot be restored."


class BackupExists(FlyMQError):
    """There is a backup of this name."""

    code = "BACKUP_EXISTS"
    hint = "Use another --name; a backup is never written over."


class BackupDamaged(FlyMQError):
    """The backup is not what it was when it was made."""

    code = "BACKUP_DAMAGED"
    hint = "flymq backup verify lists what is wrong. Use another backup."
