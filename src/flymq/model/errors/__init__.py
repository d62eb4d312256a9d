"""Every expected error of FlyMQ.

A `FlyMQError` has a stable `code` that is the same in every protocol, says whether a retry can help (`retriable`), and
has a `hint` for the person who reads it. Raise it where the cause is known; map it once, in a gateway's table.
What cannot happen is an `assert`, not an error of this package.
"""

from __future__ import annotations

from flymq.model.errors.archives import *
from flymq.model.errors.backups import *
from flymq.model.errors.base import *
from flymq.model.errors.batches import *
from flymq.model.errors.client_metrics import *
from flymq.model.errors.connections import *
from flymq.model.errors.coordinators import *
from flymq.model.errors.disk import *
from flymq.model.errors.groups import *
from flymq.model.errors.http import *
from flymq.model.errors.metadata import *
from flymq.model.errors.pipelines import *
from flymq.model.errors.queries import *
from flymq.model.errors.requests import *
from flymq.model.errors.spark import *
from flymq.model.errors.spark_setup import *
from flymq.model.errors.supervisor import *
from flymq.model.errors.topics import *
from flymq.model.errors.transactions import *
from flymq.model.errors.values import *


def all_errors() -> dict[str, type[FlyMQError]]:
    """Map each stable code to its class."""
    found: dict[str, type[FlyMQError]] = {}
    pending: list[type[FlyMQError]] = [FlyMQError]
    while pending:
        error = pending.pop()
        assert found.get(error.code, error) is error, f"two errors share the code {error.code}"
        found[error.code] = error
        pending.extend(error.__subclasses__())
    return found
