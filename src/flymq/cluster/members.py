"""The brokers of the cluster and its controller, as known to this broker: a part of the image (image.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flymq.cluster.brokers import (
    ADMISSION_PREFIX,
    CONTROLLER_KEY,
    REGISTRATION_PREFIX,
    Admission,
    ClusterBroker,
    Registration,
    parse_admission,
    parse_registration,
)
from flymq.metadata.store import KeyValue


@dataclass(frozen=True, slots=True)
class ControllerSeat:
    """Who is the controller, and with which epoch."""

    broker_id: int
    epoch: int


class Members:
    """All brokers that are registered."""

    def __init__(self) -> None:
        self._registrations: dict[int, tuple[Registration, int]] = {}
        self._admissions: dict[int, Admission] = {}
        self._brokers: dict[int, ClusterBroker] = {}
        self.controller: ControllerSeat | None = None

    def __iter__(self) -> Iterator[ClusterBroker]:
        return iter(sorted(self._brokers.values(), key=lambda broker: broker.broker_id))

    def __len__(self) -> int:
        return len(self._brokers)

    def find(self, broker_id: int) -> ClusterBroker | None:
        return self._brokers.get(broker_id)

    def last_epoch(self, broker_id: int) -> int:
        """Return the epoch of the last registration of a broker that the controller has taken in; 0: there was none."""
        admission = self._admissions.get(broker_id)
        return 0 if admission is None else admission.epoch

    @property
    def live(self) -> frozenset[int]:
        """The brokers that may lead and be in sync."""
        return frozenset(broker_id for broker_id, broker in self._brokers.items() if broker.is_live)

    def is_key(self, key: str) -> bool:
        """Whether this key is about brokers."""
        return key == CONTROLLER_KEY or key.startswith((REGISTRATION_PREFIX, ADMISSION_PREFIX))

    def clear(self) -> None:
        """Forget everything: it is read again."""
        self._registrations.clear()
        self._admissions.clear()
        self._brokers.clear()
        self.controller = None

    def apply(self, key: str, found: KeyValue | None) -> None:
        """Take in one change."""
        if key == CONTROLLER_KEY:
            self.controller = None if found is None else ControllerSeat(int(found.value), found.create_revision)
            return
        is_registration = key.startswith(REGISTRATION_PREFIX)
        broker_id = int(key.removeprefix(REGISTRATION_PREFIX if is_registration else ADMISSION_PREFIX))
        if found is None:
            (self._registrations if is_registration else self._admissions).pop(broker_id, None)
        elif is_registration:
            self._registrations[broker_id] = parse_registration(found.value), found.create_revision
        else:
            self._admissions[broker_id] = parse_admission(found.value)
        if (registered := self._registrations.get(broker_id)) is None:
            self._brokers.pop(broker_id, None)
        else:
            self._brokers[broker_id] = ClusterBroker(broker_id, *registered, self._admissions.get(broker_id))
