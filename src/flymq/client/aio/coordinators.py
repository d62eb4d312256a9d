"""Send the requests of a group or a transaction to its coordinator, and follow a coordinator that moves.

Look up the coordinator, keep it, send; when the broker says that it coordinates no longer, cannot be reached or was
replaced, look it up again. A broker that does not know this operation is a cluster of its own: any connection will do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from flymq.client.aio.failover import unless_replaced
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import (
    BrokerUnavailable,
    ConnectionLost,
    CoordinatorLoading,
    CoordinatorOffline,
    FlyMQError,
    NotCoordinator,
    RebalanceInProgress,
    RequestTimedOut,
)
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Message
from flymq.wire.native.messages.groups import (
    CommitAnswer,
    FetchOffsetsAnswer,
    FindCoordinator,
    FindCoordinatorAnswer,
    ResetOffsetsAnswer,
)
from flymq.wire.native.messages.topics import NO_BROKER

if TYPE_CHECKING:
    from flymq.client.aio.cluster import Cluster

M = TypeVar("M", bound=Message)

GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION

_KNOWN_MAX = 10_000
_MAY_HAVE_MOVED = (NotCoordinator, CoordinatorOffline, BrokerUnavailable, ConnectionLost, RequestTimedOut)
_NOT_EXECUTED = (NotCoordinator, CoordinatorLoading, BrokerUnavailable)
"""Errors after which a request that has side effects can be sent again."""
_FOR_THE_CALLER = (RebalanceInProgress,)
"""Retriable, but not with the same request."""


class Coordinators:
    """The coordinators of groups and transactions, as far as they were looked up."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[CoordinatorKind, str], int] = {}

    async def ask(
        self,
        kind: CoordinatorKind,
        key: str,
        request: Message,
        answer: type[M],
        *,
        extra_timeout_s: float = 0.0,
        is_repeated: bool = True,
    ) -> M:
        """Send an idempotent request; retry until it is answered or the request timeout has passed.

        Returns an answer without errors: that of a partition is raised. With `is_repeated` false, send it once.
        """

        async def attempt() -> M:
            return await self._send(kind, key, request, answer, extra_timeout_s)

        return await self._cluster.retry(attempt, may_retry=lambda error: is_repeated and self._may_repeat(error))

    async def tell(self, kind: CoordinatorKind, key: str, request: Message, answer: type[M]) -> M:
        """Send a request that must not be repeated once it may have been executed."""

        async def attempt() -> M:
            return await self._send(kind, key, request, answer, 0.0)

        return await self._cluster.retry(attempt, may_retry=lambda error: isinstance(error, _NOT_EXECUTED))

    def _may_repeat(self, error: FlyMQError) -> bool:
        return not isinstance(error, _FOR_THE_CALLER)

    async def _send(
        self, kind: CoordinatorKind, key: str, request: Message, answer: type[M], extra_timeout_s: float
    ) -> M:
        broker = await self._find(kind, key)
        try:
            sent = self._request(broker, request, answer, self._cluster.request_timeout_s + extra_timeout_s)
            if self._cluster.brokers.has_others:
                answered = await unless_replaced(sent, self._is_replaced(kind, key, broker))
            else:
                answered = await sent
            _raise_errors_of_partitions(answered)
        except _MAY_HAVE_MOVED:
            self._known.pop((kind, _home(kind, key)), None)
            raise
        return answered

    async def _request(self, broker: int, request: Message, answer: type[M], timeout_s: float) -> M:
        connection = await self._cluster.connection(broker)
        return await connection.request(request, answer, timeout_s)

    async def _find(self, kind: CoordinatorKind, key: str) -> int:
        known = self._known.get((kind, _home(kind, key)))
        return await self._look_up(kind, key) if known is None else known

    async def _look_up(self, kind: CoordinatorKind, key: str) -> int:
        connection = await self._cluster.connection()
        if not connection.serves(FindCoordinator):
            return NO_BROKER
        found = await self._cluster.ask_any(FindCoordinator(kind=kind, key=key), FindCoordinatorAnswer)
        self._cluster.brokers.learn(found.broker, (found.host, found.port))
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[kind, _home(kind, key)] = found.broker
        return found.broker

    def _is_replaced(self, kind: CoordinatorKind, key: str, broker: int) -> Callable[[], Awaitable[bool]]:
        async def is_replaced() -> bool:
            return broker != NO_BROKER and await self._look_up(kind, key) != broker

        return is_replaced


def _home(kind: CoordinatorKind, key: str) -> str:
    """All attempts of a Spark query, `<query>:<batch>:<task>`, have the query's coordinator."""
    return key.partition(":")[0] if kind is TRANSACTION else key


def _raise_errors_of_partitions(answer: Message) -> None:
    if isinstance(answer, CommitAnswer | FetchOffsetsAnswer | ResetOffsetsAnswer):
        for part in answer.partitions:
            if part.error is not None:
                raise error_of(part.error)
