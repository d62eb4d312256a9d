"""On which brokers the replicas of partitions are placed: evenly, and in different racks.

Brokers are taken in turns, racks interleaved: with the racks a (1, 2) and b (3, 4) in the order 1, 3, 2, 4. The first
replica, the preferred leader, goes to the next broker of that order; the others to those after it, first to racks that
have none yet. Each round over all brokers shifts the followers by one more, so that the partitions of a broker that
fails are taken over by all the others and not by its neighbour alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest

from flymq.model.errors import InvalidReplicaAssignment, InvalidReplicationFactor


def place(
    racks: Mapping[int, str], partitions: int, replication_factor: int, *, first: int = 0, start: int = 0
) -> list[list[int]]:
    """Return the brokers of each new partition, from number `first` on.

    `racks`: the rack of each broker, empty if it has none. `start`: where in the order of brokers to begin; a number
    that differs from topic to topic, so that small topics do not all start at the same broker.
    """
    _check_factor(racks, replication_factor)
    order = _interleave(racks)
    return [_replicas(order, racks, replication_factor, start + number) for number in range(first, first + partitions)]


def check_placed(placed: Sequence[Sequence[int]], brokers: Collection[int], replication_factor: int) -> None:
    """Refuse replicas that a client has placed where they cannot be."""
    for replicas in placed:
        if unknown := [broker for broker in replicas if broker not in brokers]:
            raise InvalidReplicaAssignment(f"there is no broker {unknown[0]}; there are {sorted(brokers)}")
        if len(set(replicas)) < len(replicas):
            raise InvalidReplicaAssignment(f"{list(replicas)} names a broker twice")
        if len(replicas) != replication_factor or not replicas:
            raise InvalidReplicaAssignment(
                f"{list(replicas)} are {len(replicas)} replicas; all partitions of a topic have as many, here "
                f"{replication_factor}",
                hint="Give each partition the same number of replicas, at least one.",
            )


def resize(
    placed: Sequence[Sequence[int]],
    racks: Mapping[int, str],
    replication_factor: int,
    *,
    away: Collection[int] = (),
) -> list[list[int]]:
    """Return where the partitions of a topic should be, to have so many replicas on these brokers.

    Replicas that are on one of them, or on one that is `away` for a while, stay, as far as there are not too many. New
    ones go to racks without one, and to the brokers with the fewest. The preferred leaders are spread evenly.
    """
    _check_factor(racks, replication_factor)
    load = Counter(broker for replicas in placed for broker in replicas)
    leads: Counter[int] = Counter()
    resized = []
    for replicas in placed:
        chosen = [broker for broker in replicas if broker in racks or broker in away]
        while len(chosen) > replication_factor:
            worst = max(chosen, key=lambda broker: (broker in away, load[broker], broker))
            chosen.remove(worst)
            load[worst] -= 1
        while len(chosen) < replication_factor:
            used = {racks.get(broker) for broker in chosen}
            best = min(racks.keys() - set(chosen), key=lambda each: (racks[each] in used, load[each], each))
            chosen.append(best)
            load[best] += 1
        first = min(chosen, key=lambda broker: (broker in away, leads[broker]))  # of equals the one that leads now
        leads[first] += 1
        resized.append([first, *(broker for broker in chosen if broker != first)])
    return resized


def _check_factor(racks: Mapping[int, str], replication_factor: int) -> None:
    if not 1 <= replication_factor <= len(racks):
        brokers = "1 broker" if len(racks) == 1 else f"{len(racks)} brokers"
        raise InvalidReplicationFactor(f"{replication_factor} replicas on {brokers}")


def _interleave(racks: Mapping[int, str]) -> list[int]:
    """Return the brokers, one rack after the other in turns."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    turns = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for turn in turns for broker in turn if broker is not None]


def _replicas(order: Sequence[int], racks: Mapping[int, str], count: int, at: int) -> list[int]:
    size = len(order)
    leader = at % size
    shift = at // size % max(1, size - 1)
    others = [order[(leader + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    chosen = [order[leader]]
    while len(chosen) < count:
        used = {racks[broker] for broker in chosen}
        fresh = [broker for broker in others if racks[broker] not in used] or others
        chosen.append(fresh[0])
        others.remove(fresh[0])
    return chosen
