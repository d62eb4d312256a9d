"""Commit the offsets of a query to a consumer group, so that its lag can be monitored like that of any consumer.

The offsets are for monitoring only. A query restarts from its checkpoint and never reads them.
"""

from __future__ import annotations

import logging

from flymq.client.aio.coordinators import GROUP
from flymq.model.errors import FlyMQError
from flymq.spark.broker_connection import BrokerConnection
from flymq.spark.options import ReadOptions
from flymq.spark.source.offsets import Offsets, parse_partitions
from flymq.wire.native.messages.groups import Commit, CommitAnswer, OffsetToCommit

logger = logging.getLogger(__name__)


def group_of(options: ReadOptions) -> str | None:
    """Return the group to commit to, by the options; None if there is none."""
    if options.group_id is not None or options.group_id_prefix is None:
        return options.group_id
    topics = options.subscribe
    if options.assign is not None:
        topics = tuple(dict.fromkeys(name.topic for name in parse_partitions("assign", options.assign)))
    return "-".join([options.group_id_prefix, *(topics or ["pattern"])])


def publish(connection: BrokerConnection, group: str, offsets: Offsets) -> None:
    """Commit offsets for a group without members. A failure is logged and does not fail the query."""
    request = Commit(
        group=group,
        offsets=[OffsetToCommit(name.topic, name.partition, offset) for name, offset in offsets.items()],
    )
    try:
        connection.run(connection.cluster.coordinators.ask(GROUP, group, request, CommitAnswer))
    except FlyMQError as error:
        logger.warning("cannot commit offsets for the group %s: %s", group, error)
