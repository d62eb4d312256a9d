"""Heartbeats of classic group members that are answered when the group rebalances.

A classic member learns of a rebalance from the answer to its heartbeat, which it sends every three seconds by default:
so long a second member would wait for its partitions. Here the answer waits for a rebalance instead, until the
connection has another request or a while has passed. Only for clients that send heartbeats beside their other work:
others would stop at each one.
"""

from __future__ import annotations

import asyncio

from flymq.broker.service.records import PromptFuture
from flymq.gateways.kafka.connection import KafkaConnection

WAIT_S_MAX = 3.0
"""The usual interval between two heartbeats: the next one follows at once. Much less than a session timeout."""


def may_wait(connection: KafkaConnection) -> bool:
    """Whether heartbeats of this client may wait, by what its library tells in ApiVersions."""
    name, version = connection.software
    return name == "apache-kafka-java" or "rdkafka" in name or "rdkafka" in version


class WaitingHeartbeat(PromptFuture[bool]):
    """Done with True when the group rebalances or has removed the member, with False when the wait is over."""

    __slots__ = ("_connection", "_group", "_timer")

    def __init__(self, connection: KafkaConnection, group: str, member_id: str) -> None:
        super().__init__()
        self._connection = connection
        self._group = group
        groups = connection.service.groups
        wait_s = min(WAIT_S_MAX, groups.session_timeout_ms(connection.caller, group, member_id) / 4000)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.finish)
        groups.listen(group, member_id, self)
        connection.waiting_heartbeat = self

    def rebalancing(self) -> None:
        self.set_result(True)

    def removed(self) -> None:
        self.set_result(True)

    def finish(self) -> None:
        """Answer now."""
        self.set_result(False)

    def _end(self) -> None:
        self._timer.cancel()
        self._connection.service.groups.stop_listening(self._group, self)
        self._connection.waiting_heartbeat = None
        super()._end()
