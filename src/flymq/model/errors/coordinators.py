"""The broker that coordinates a group or a transaction."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class NotCoordinator(FlyMQError):
    """This broker does not coordinate the group or transaction."""

    code = "NOT_COORDINATOR"
    retriable = True
    hint = "Look up the coordinator again and send the request there."


class CoordinatorLoading(FlyMQError):
    """The coordinator is still loading its state."""

    code = "COORDINATOR_LOADING"
    retriable = True
    hint = "Retry after a short wait."


class CoordinatorOffline(FlyMQError):
    """The state of the group or transaction cannot be read from the disk."""

    code = "COORDINATOR_OFFLINE"
    retriable = True
    hint = "The message says which partition is offline; stop the broker and run `flymq repair check`."
