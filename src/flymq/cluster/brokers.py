"""The brokers of a cluster, as keys of the metadata store.

    b/<id>     Registration: where a broker can be reached. Leased: it is gone when the broker is
    ba/<id>    Admission: which registration the controller has taken in; written by the controller alone
    ctl        id of the controller. Leased

The epoch of a broker is the revision at which its registration was created, that of the controller the one of `ctl`.
A broker that was restarted has a new epoch, even if nobody saw that it was away. A registration counts once it is
admitted: before that the controller has removed the broker from the in-sync replicas, if it may have lost records.
"""

from __future__ import annotations

from dataclasses import dataclass

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


class Registration(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a broker tells about itself."""

    listeners: list[Listener]
    directory: str
    """The id of its data directory."""
    rack: str = ""
    secret: str = ""
    """By which other brokers know that it is this one that connects to them. Chosen anew at each start."""
    was_clean: bool = False
    """Whether its logs were closed cleanly, in this directory. If not, it may have lost records."""
    is_draining: bool = False
    """It is about to stop: others should lead."""


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

    @property
    def is_live(self) -> bool:
        """Whether it may lead and be in sync."""
        return self.is_admitted and self.admission is not None and not self.admission.is_fenced

    @property
    def is_admitted(self) -> bool:
        return self.admission is not None and self.admission.epoch == self.epoch


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
