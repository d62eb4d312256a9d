"""Several brokers under one supervisor."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class BrokerProcessFailed(FlyMQError):
    """A broker under a supervisor did not start."""

    code = "BROKER_PROCESS_FAILED"
    hint = "The broker's own message says why: see the lines before this one."
