"""A listener that commits the offsets of every streaming query of a session, so that monitoring shows its lag.

    spark.streams.addListener(LagListener("localhost:9092"))

The option `groupId` does the same for one query, but commits a micro-batch only when the next one is planned. With this
listener a query that runs once an hour shows its lag in time.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from flymq.spark.broker_connection import connect
from flymq.spark.options import ConnectionOptions
from flymq.spark.source.groups import publish
from flymq.spark.source.offsets import Offsets, from_spark


class LagListener(StreamingQueryListener):
    """Commits the end offsets of every micro-batch for the group `<prefix>-<name of the query, or its id>`."""

    def __init__(self, bootstrap_servers: str | None = None, *, prefix: str = "spark", **options: Any) -> None:
        self._options = ConnectionOptions(bootstrap_servers=bootstrap_servers, **options)
        self._prefix = prefix

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        reached: Offsets = {}
        for source in progress.sources:
            reached |= _offsets(source.endOffset)
        if reached:
            group = f"{self._prefix}-{progress.name or progress.id}"
            publish(connect(self._options.connection()), group, reached)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass


def _offsets(text: str) -> Offsets:
    """Return the offsets of a FlyMQ source; empty for any other source."""
    try:
        return from_spark(json.loads(text))
    except (TypeError, ValueError, AttributeError):
        return {}
