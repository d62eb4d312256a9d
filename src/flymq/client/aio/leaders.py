"""Send requests about partitions to their leaders, and follow a leader that moves.

Find the leaders in the cached metadata, send, and on any failure drop the cached leaders of the partitions concerned:
the next attempt asks the brokers who leads now. Producers and consumers that read ahead have their own loops (`sender`,
`fetcher`), which settle batches one by one; everything else goes through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

from flymq.client.aio.cluster import Cluster
from flymq.model.errors import FlyMQError
from flymq.wire.native.codec import error_of
from flymq.wire.native.messages.fields import Failure, Message
from flymq.wire.native.messages.records import Consume, ConsumeAnswer


class PartitionRequest(Protocol):
    """The part of a request that concerns one partition."""

    topic: str
    partition: int


class PartitionResult(Protocol):
    """The part of an answer that concerns one partition, which may have failed on its own."""

    topic: str
    partition: int
    error: Failure | None


P = TypeVar("P", bound=PartitionRequest)
R = TypeVar("R", bound=PartitionResult)
R_co = TypeVar("R_co", bound=PartitionResult, covariant=True)
M = TypeVar("M", bound=Message)


class PartitionedAnswer(Protocol[R_co]):
    """An answer with a result for each partition."""

    @property
    def partitions(self) -> Sequence[R_co]: ...


async def ask_leaders(
    cluster: Cluster,
    parts: Iterable[P],
    request: Callable[[list[P]], Message],
    answer: type[PartitionedAnswer[R]],
) -> list[R]:
    """Send each part to the leader of its partition, one request to each leader, and return the results.

    What failed is sent again, alone, until it succeeds, cannot succeed, or the request timeout has passed. Parts of one
    partition stay in order: all of them are sent again if the partition failed.
    """
    left = list(parts)
    results: list[R] = []

    async def attempt() -> None:
        nonlocal left
        by_leader: dict[int, list[P]] = {}
        for part in left:
            by_leader.setdefault(await cluster.leader_of(part.topic, part.partition), []).append(part)
        for leader, group in by_leader.items():
            names = [(part.topic, part.partition) for part in group]
            answered = await _tell(cluster, leader, names, request(group), cast(type[Any], answer))
            failures = {(part.topic, part.partition): part.error for part in answered.partitions if part.error}
            done = {id(part) for part in group if (part.topic, part.partition) not in failures}
            left = [part for part in left if id(part) not in done]
            results.extend(part for part in answered.partitions if not part.error)
            for name in failures:
                cluster.invalidate(*name)
            for failure in failures.values():
                raise error_of(failure)

    await cluster.retry(attempt)
    return results


async def ask_leader(cluster: Cluster, request: Consume) -> ConsumeAnswer:
    """Send a request about one partition, which fails or succeeds as a whole, to the partition's leader."""

    async def attempt() -> ConsumeAnswer:
        leader = await cluster.leader_of(request.topic, request.partition)
        return await _tell(cluster, leader, [(request.topic, request.partition)], request, ConsumeAnswer)

    return await cluster.retry(attempt)


async def _tell(
    cluster: Cluster, leader: int, names: Sequence[tuple[str, int]], request: Message, answer: type[M]
) -> M:
    """Send once. A leader that cannot be reached or refuses may lead no longer."""
    try:
        return await cluster.while_leading(leader, names, cluster.tell(request, answer, broker=leader))
    except FlyMQError:
        for name in names:
            cluster.invalidate(*name)
        raise
