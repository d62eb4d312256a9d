"""The brokers of a cluster, as keys of the metadata store.

    b/<id>     Registration: where a broker can be reached. Leased: it is gone when the broker is
    ba/<id>    Admission: which registration the controller has taken in; written by the controller alone
    ctl        id of the controller. Leased

The epoch of a broker is the revision at which its registration was created, that of the controller the one of `ctl`.
A broker that was restarted has a new epoch, even if nobody saw that it was away. A registration counts once it is
admitted: before that the controller has removed the broker from the in-sync replicas, if it may have lost records.

Leases end some seconds after a broker has died. A process that is killed closes its connections at once, and its port
refuses new ones; so the controller fences its registration without waiting for the lease. A broker that is fenced and
lives all the same registers again. Nothing depends on being right here: changes compare registrations and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

import msgspec

REGISTRATION_PREFIX = "b/"
ADMISSION_PREFIX = "ba/"
CONTROLLER_KEY = "ctl"


class Listener(msgspec.Struct, frozen=True, omit_defaults=True):
    """An address that clients or brokers connect to."""

    host: str
    port: int
    name: str = ""
    """Empty for the one that brokers use among each other."""


class Kept(IntEnum):
    """What a broker still has, after a restart, of what it had when it was last registered."""

    NOTHING = 0
    """Its data directory is new, or older than its last registration."""
    SYNCED = 1
    """What was on its disk: it was not stopped cleanly, and may have lost power."""
    WRITTEN = 2
    """What was written: its logs were closed cleanly."""
    EVERYTHING = 3
    """Also what was in memory only: it is the same process."""


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a broker tells about itself."""

    listeners: list[Listener]
    directory: str
    """The id of its data directory."""
    rack: str = ""
    secret: str = ""
    """By which other brokers know that it is this one that connects to them. Chosen anew at each start."""
    kept: Kept = Kept.NOTHING
    """What of its records has certainly survived since it was last registered."""
    is_draining: bool = False
    """It is about to stop: others should lead."""
    failed: dict[str, list[int]] = {}
    """Topic id → partitions whose logs have failed on this broker: others should lead these."""


class Admission(msgspec.Struct, frozen=True, omit_defaults=True):
    """The controller's answer to a registration."""

    epoch: int
    is_fenced: bool = False
    """The controller knows that the broker is dead before its lease has ended."""


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """A broker at one revision."""

    broker_id: int
    registration: Registration
    epoch: int
    admission: Admission | None = None

    def has_failed(self, topic_id: UUID, partition: int) -> bool:
        """Whether its replica of this partition cannot be used."""
        failed = self.registration.failed
        return bool(failed) and partition in failed.get(str(topic_id), ())

    @property
    def is_live(self) -> bool:
        """Whether it may lead and be in sync."""
        return self.is_admitted and not self.is_fenced

    @property
    def is_admitted(self) -> bool:
        """Whether the controller has answered to this registration, by taking it in or by fencing it."""
        return self.admission is not None and self.admission.epoch == self.epoch

    @property
    def is_fenced(self) -> bool:
        return self.admission is not None and self.admission.epoch == self.epoch and self.admission.is_fenced


def registration_key(broker_id: int) -> str:
    return f"{REGISTRATION_PREFIX}{broker_id}"


def admission_key(broker_id: int) -> str:
    return f"{ADMISSION_PREFIX}{broker_id}"


def parse_registration(value: bytes) -> Registration:
    return msgspec.json.decode(value, type=Registration)


def parse_admission(value: bytes) -> Admission:
    return msgspec.json.decode(value, type=Admission)


def encode(value: Registration | Admission) -> bytes:
    return msgspec.json.encode(value, order="sorted")
