"""Let the broker know how far a query has come, so that its lag shows beside that of all consumers.

The offsets are for people and alerts. A query itself goes by its checkpoint and never reads them.
"""

from __future__ import annotations

import logging

from flymq.model.errors import FlyMQError
from flymq.spark.broker_connection import BrokerConnection
from flymq.spark.options import ReadOptions
from flymq.spark.source.offsets import Offsets, parse_partitions
from flymq.wire.native.messages.groups import Commit, CommitAnswer, OffsetToCommit

logger = logging.getLogger(__name__)


def group_of(options: ReadOptions) -> str | None:
    """Return the group whose lag the options want a query to show; None when they want none."""
    if options.group_id is not None or options.group_id_prefix is None:
        return options.group_id
    topics = options.subscribe
    if options.assign is not None:
        topics = tuple(dict.fromkeys(name.topic for name in parse_partitions("assign", options.assign)))
    return "-".join([options.group_id_prefix, *(topics or ["pattern"])])


def publish(connection: BrokerConnection, group: str, offsets: Offsets) -> None:
    """Commit offsets for a group that has no members. A failure is no reason to fail the query."""
    request = Commit(
        group=group,
        offsets=[OffsetToCommit(name.topic, name.partition, offset) for name, offset in offsets.items()],
    )
    try:
        answer = connection.run(connection.cluster.ask(request, CommitAnswer))
    except FlyMQError as error:
        logger.warning("the lag of group %s cannot be shown: %s", group, error)
        return
    for part in answer.partitions:
        if part.error is not None:
            logger.warning("the lag of group %s in %s cannot be shown: %s", group, part.topic, part.error.message)
            return
