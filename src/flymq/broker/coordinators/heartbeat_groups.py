"""What consumer groups and streams groups have in common: members send heartbeats, the broker assigns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from flymq.broker.coordinators.deadlines import Deadlines
from flymq.broker.coordinators.group_limits import limits_of
from flymq.broker.coordinators.state_log import StateLog
from flymq.broker.safety import Safe
from flymq.cluster.image import Image
from flymq.coordination.entries import Entry
from flymq.coordination.group import GroupLimits
from flymq.coordination.groups import GroupTable
from flymq.host.clock import Clock


class HeartbeatGroup(Protocol):
    name: str

    def begin_sessions(self, now_s: float) -> None: ...

    def overdue(self, now_s: float) -> list[str]: ...

    def next_deadline_s(self) -> float | None: ...

    def decide_targets(self, partition_counts: Mapping[str, int], now_ms: int) -> list[Entry]: ...


G = TypeVar("G", bound=HeartbeatGroup)


class HeartbeatGroups(Generic[G]):
    """Membership in groups of one type; `Groups` has their offsets."""

    group_type: ClassVar[type[Any]]
    settings_prefix: ClassVar[str]
    """How the names of the settings of such a group begin."""

    def __init__(self, log: StateLog[GroupTable], image: Image, clock: Clock, limits: GroupLimits) -> None:
        self.limits = limits
        self._log = log
        self._image = image
        self._clock = clock
        self._deadlines = Deadlines(clock, self._look_at)
        self._unassigned: set[str] = set()  # groups whose new targets could not be written
        self.rebalances = 0
        """Number of changes of target assignments since the start."""

    def close(self) -> None:
        self._deadlines.close()

    def limits_of(self, name: str) -> GroupLimits:
        """Return the limits of a group, which may have settings of its own."""
        return limits_of(self.limits, self._image, name, type_=self.settings_prefix)

    def _look_at(self, name: str) -> float | None:
        """Remove the members that timed out; return the next deadline."""
        group = self._find(name)
        if group is None:
            return None
        if overdue := group.overdue(self._clock.monotonic_s()):
            self._remove(group, overdue)
        elif name in self._unassigned:
            self._assign(group)
        return group.next_deadline_s()

    def _find(self, name: str) -> G | None:
        table = self._log.find_table(self._log.number_of(name))
        found: Any = None if table is None else table.find(name)
        return found if isinstance(found, self.group_type) else None

    def _remove(self, group: G, member_ids: Sequence[str]) -> None:
        raise NotImplementedError

    def _assign(self, group: G) -> None:
        if entries := group.decide_targets(self._image.partition_counts(), self._clock.now_ms()):
            self._unassigned.add(group.name)  # unless this write succeeds
            self._write(group.name, entries)
            self.rebalances += 1
        self._unassigned.discard(group.name)
        self._watch(group)

    def _watch(self, group: G) -> None:
        group.begin_sessions(self._clock.monotonic_s())
        self._deadlines.set(group.name, group.next_deadline_s())

    def _write(self, name: str, entries: Sequence[Entry]) -> None:
        self._log.write(self._log.number_of(name), entries)

    def _safe(self, name: str) -> Safe:
        return self._log.safe(self._log.number_of(name))
