"""Who leads a partition, and who is in sync: pure decisions on its state, without I/O.

A replica in `isr` or `elr` has every committed record, whatever it lost otherwise: a record is committed when all of
`isr` have it, and only while `isr` has at least `min.insync.replicas` members. So

* whoever leaves `isr` when that makes it too small, moves to `elr`;
* when `isr` is large enough again, records are committed without those in `elr`, which is emptied;
* a broker whose disk may have lost something leaves both, except as the last one: nobody else has more;
* a leader comes from `isr`, else from `elr`, else there is none. Only an explicit setting lets another replica lead,
  which loses committed records.

Replicas are reassigned by union first: the new ones are added beside the old ones. When they are in sync, the old ones
leave, in one change. So at no time are there fewer replicas than before.

Every function returns a new state, or the same one if nothing changes. A new leader always has a higher leader epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from flymq.cluster.catalog import NO_LEADER, PartitionState
from flymq.model.errors import InvalidReplicaAssignment


def change_isr(state: PartitionState, isr: Iterable[int], *, min_isr: int) -> PartitionState:
    """Let these replicas be in sync: the leader has seen that others fell behind, or caught up."""
    members = _ordered(state, isr)
    if not members:
        return state
    left = {*state.isr, *state.elr} - set(members) if len(members) < min_isr else ()
    return _changed(state, isr=members, elr=_ordered(state, left))


def lose(state: PartitionState, lossy: Collection[int]) -> PartitionState:
    """These brokers may have lost records: they are not in sync any more, unless nobody else is."""
    isr = [broker for broker in state.isr if broker not in lossy]
    elr = [broker for broker in state.elr if broker not in lossy]
    if not isr and elr:  # they have all that is committed, too
        isr, elr = elr, []
    return _changed(state, isr=isr, elr=elr) if isr else state


def adapt(state: PartitionState, live: Collection[int], *, min_isr: int, unclean: bool = False) -> PartitionState:
    """Adapt to the brokers that live: whoever does not is not in sync, and does not lead."""
    alive = [broker for broker in state.isr if broker in live]
    if alive:
        state = change_isr(state, alive, min_isr=min_isr)
    if state.leader in live and state.leader in state.isr:
        return state
    return _lead(state, _candidate(state, live, unclean=unclean))


def move_away(state: PartitionState, broker: int, live: Collection[int], *, min_isr: int) -> PartitionState:
    """Let another broker lead, and this one leave the in-sync replicas, if one can: it is about to stop."""
    others = [other for other in state.isr if other != broker and other in live]
    if broker not in state.isr or not others:
        return state
    state = change_isr(state, [other for other in state.isr if other != broker], min_isr=min_isr)
    return _lead(state, others[0]) if state.leader == broker else state


def prefer(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Let the preferred leader lead, if it lives and is in sync."""
    preferred = state.replicas[0]
    if state.leader in (preferred, NO_LEADER) or preferred not in state.isr or preferred not in live:
        return state
    return _lead(state, preferred)


# --- reassignment ---------------------------------------------------------------------------------------------------


def reassign(state: PartitionState, target: Sequence[int], live: Collection[int]) -> PartitionState:
    """Begin to move the replicas to these brokers. A reassignment that is under way is replaced."""
    original = [broker for broker in state.replicas if broker not in state.adding]
    adding = [broker for broker in target if broker not in original]
    removing = [broker for broker in original if broker not in target]
    return _only_replicas(replace(state, replicas=[*target, *removing], adding=adding, removing=removing), live)


def cancel_reassignment(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Take back what a reassignment has added."""
    original = [broker for broker in state.replicas if broker not in state.adding]
    return _only_replicas(replace(state, replicas=original, adding=[], removing=[]), live)


def finish_reassignment(state: PartitionState, live: Collection[int], *, min_isr: int) -> PartitionState:
    """If all added replicas are in sync, and enough are without the removed ones, let those leave."""
    if not state.adding and not state.removing:
        return state
    left = [broker for broker in state.isr if broker not in state.removing]
    is_enough = len(left) >= min(min_isr, len(state.target)) and any(broker in live for broker in left)
    if not is_enough or not set(state.adding).issubset(left):
        return state
    return _only_replicas(replace(state, replicas=state.target, adding=[], removing=[]), live)


def _only_replicas(state: PartitionState, live: Collection[int]) -> PartitionState:
    """Keep who is a replica in sync, and as the leader."""
    isr, elr = _ordered(state, state.isr), _ordered(state, state.elr)
    if not isr:
        isr, elr = elr, []
    if not isr:
        raise InvalidReplicaAssignment("none of the remaining replicas is in sync")
    state = replace(state, isr=isr, elr=elr)
    if state.leader in (*isr, NO_LEADER):
        return state
    return _lead(state, _candidate(state, live, unclean=False))


def _candidate(state: PartitionState, live: Collection[int], *, unclean: bool) -> int:
    for members in (state.isr, state.elr, state.replicas if unclean else ()):
        for broker in state.replicas:
            if broker in members and broker in live:
                return broker
    return NO_LEADER


def _lead(state: PartitionState, broker: int) -> PartitionState:
    if broker == state.leader:
        return state
    if broker == NO_LEADER:
        return replace(state, leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
    isr, elr = state.isr, state.elr
    if broker not in isr:  # nobody in sync is alive; if this one is eligible, they have no more than it
        isr, elr = [broker], _ordered(state, {*isr, *elr} - {broker}) if broker in elr else []
    return replace(state, leader=broker, leader_epoch=state.leader_epoch + 1, isr=isr, elr=elr)


def _ordered(state: PartitionState, brokers: Iterable[int]) -> list[int]:
    members = set(brokers)
    return [broker for broker in state.replicas if broker in members]


def _changed(state: PartitionState, *, isr: list[int], elr: list[int]) -> PartitionState:
    return state if (isr, elr) == (state.isr, state.elr) else replace(state, isr=isr, elr=elr)
