"""Metrics that clients push (KIP-714)."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidRequest


class UnknownMetricsSubscription(FlyMQError):
    """The client pushes metrics for a subscription that has changed."""

    code = "UNKNOWN_METRICS_SUBSCRIPTION"
    hint = "Get the subscription again."


class MetricsTooLarge(InvalidRequest):
    """The client pushes more bytes of metrics than the broker accepts."""

    code = "METRICS_TOO_LARGE"
    hint = "Subscribe to fewer metrics of this client."


class MetricsTooOften(FlyMQError):
    """The client asks for its subscription, or pushes metrics, before its interval has passed."""

    code = "METRICS_TOO_OFTEN"
    retriable = True
    hint = "Wait for the interval of the subscription."
