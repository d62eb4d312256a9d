"""What happens to the brokers of a cluster, to their network, their disks and their etcd; and how it is mended.

A fault is a function with a site; it returns when it is mended, but not when the cluster has recovered from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.campaigns.failing_disk import FailingDisk
from tests.campaigns.namespaces import OUTSIDE, Namespaces
from tests.cluster.brokers import Brokers
from tests.etcd_process import EtcdMember, until_healthy

LEASE_S = 6
"""`cluster.session_timeout_ms`."""
ETCD_AWAY_S = 20
_CHUNK = bytes(1 << 16)


@dataclass
class Site:
    """A cluster, and what can be done to it."""

    brokers: Brokers
    topics: Sequence[str]
    chance: Random
    network: Namespaces | None = None
    etcd: Sequence[EtcdMember] = ()
    small_disk: int | None = None
    """The broker whose data directory can be filled."""
    failing_disk: tuple[int, FailingDisk] | None = None
    """A broker whose disk can fail."""
    notes: list[str] = field(default_factory=list)
    """Violations that a fault itself has seen."""

    @property
    def ids(self) -> list[int]:
        return [1, 2, 3]

    def any_broker(self) -> int:
        return self.chance.choice(self.ids)

    def a_leader(self) -> int:
        """Return the leader of one of the partitions; any broker if there is none now."""
        topic = self.brokers.topic(self.chance.choice(self.topics))
        leader = self.chance.choice(topic.partitions).leader
        return leader if leader in self.ids else self.any_broker()

    def the_controller(self) -> int:
        seat = self.brokers.store.image.members.controller
        return self.any_broker() if seat is None else seat.broker_id

    def wait(self, shortest_s: float, longest_s: float) -> None:
        time.sleep(self.chance.uniform(shortest_s, longest_s))  # a fault lasts for a while


# --- processes


def _kill(site: Site, broker: int) -> None:
    site.brokers[broker].kill()
    site.wait(0.1, 4)
    site.brokers[broker].start()


def kill_a_leader(site: Site) -> None:
    _kill(site, site.a_leader())


def kill_the_controller(site: Site) -> None:
    _kill(site, site.the_controller())


def kill_two(site: Site) -> None:
    first, second = site.chance.sample(site.ids, 2)
    site.brokers[first].kill()
    site.wait(0, 1)
    site.brokers[second].kill()
    site.wait(0.1, 2)
    for broker in (first, second):
        site.brokers[broker].begin_start()
    for broker in (first, second):
        site.brokers[broker].until_started()


def kill_all(site: Site) -> None:
    order = site.chance.sample(site.ids, 3)
    for broker in order:
        site.brokers[broker].kill()
    site.wait(0.1, 2)
    for broker in site.chance.sample(order, 3):
        site.brokers[broker].begin_start()
    for broker in order:
        site.brokers[broker].until_started()


def pause_briefly(site: Site) -> None:
    _pause(site, site.a_leader(), site.chance.uniform(0.5, LEASE_S / 2))


def pause_longer_than_the_lease(site: Site) -> None:
    _pause(site, site.a_leader(), LEASE_S + site.chance.uniform(3, 6))


def _pause(site: Site, broker: int, seconds: float) -> None:
    site.brokers[broker].pause()
    time.sleep(seconds)
    site.brokers[broker].resume()


def restart(site: Site) -> None:
    broker = site.brokers[site.a_leader()]
    code = broker.stop()
    if code != 0:
        site.notes.append(f"the broker at {broker.address} ended with {code} after SIGTERM")
    site.wait(0, 1)
    broker.start()


# --- network


def cut_off(site: Site) -> None:
    """Cut a leader off from everybody: the other brokers, the metadata store and clients."""
    assert site.network is not None
    broker = site.a_leader()
    for other in [*(each for each in site.ids if each != broker), OUTSIDE]:
        site.network.cut(broker, other)
        site.network.cut(other, broker)
    _mend_network(site)


def cut_off_from_brokers(site: Site) -> None:
    """Cut a leader off from the other brokers only."""
    assert site.network is not None
    broker = site.a_leader()
    for other in (each for each in site.ids if each != broker):
        site.network.cut(broker, other)
        site.network.cut(other, broker)
    _mend_network(site)


def cut_what_it_sends(site: Site) -> None:
    """Lose what a leader sends to the other brokers and to the metadata store; what they send arrives."""
    assert site.network is not None
    broker = site.a_leader()
    for other in (each for each in site.ids if each != broker):
        site.network.cut(broker, other)
    site.network.cut_from_store(broker)
    _mend_network(site)


def cut_what_it_gets(site: Site) -> None:
    """Lose what the other brokers send to a leader; what it sends arrives."""
    assert site.network is not None
    broker = site.a_leader()
    for other in (each for each in site.ids if each != broker):
        site.network.cut(other, broker)
    _mend_network(site)


def cut_off_from_the_store(site: Site) -> None:
    assert site.network is not None
    site.network.cut_from_store(site.a_leader())
    _mend_network(site)


def _mend_network(site: Site) -> None:
    assert site.network is not None
    time.sleep(site.chance.choice([1, LEASE_S + 4, LEASE_S + 10]))
    site.network.mend()


# --- etcd


def kill_a_member_of_etcd(site: Site) -> None:
    member = site.chance.choice(site.etcd)
    member.kill()
    site.wait(2, 8)
    member.start()
    until_healthy([member])


def kill_all_of_etcd(site: Site) -> None:
    for member in site.etcd:
        member.kill()
    time.sleep(ETCD_AWAY_S)
    for member in site.etcd:
        member.start()
    until_healthy(site.etcd)


# --- disks


def fill_the_disk(site: Site) -> None:
    """Leave no room on the disk of a broker for a while."""
    assert site.small_disk is not None
    ballast = site.brokers[site.small_disk].data_dir / "ballast"
    fill(ballast)
    site.wait(2, 6)
    fill(ballast)  # what was deleted meanwhile
    site.wait(2, 6)
    ballast.unlink()


def fill(ballast: Path) -> None:
    """Let a file take all the room that is left."""
    try:
        with ballast.open("ab", buffering=0) as file:
            while file.write(_CHUNK):
                pass
    except OSError:
        return


def fail_writes(site: Site) -> None:
    """Let all writes of a broker end with an I/O error, then give it a disk that works."""
    _fail(site, "writes")


def fail_syncs(site: Site) -> None:
    """Let syncs of a broker's files end with an I/O error. It stops by itself, sooner or later."""
    _fail(site, "syncs")


def _fail(site: Site, what: str) -> None:
    assert site.failing_disk is not None
    number, disk = site.failing_disk
    broker = site.brokers[number]
    disk.fail(what)
    site.wait(3, 8)
    disk.mend()
    broker.kill()
    broker.start()


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    run: Callable[[Site], None]
    weight: int
    needs: str = ""
    """NETWORK and so on: what not every machine has."""

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", " ")


NETWORK, NEEDS_ETCD = "network", "etcd"
SMALL_DISK, FAILING_DISK = "small disk", "failing disk"
FAULTS: Mapping[str, Fault] = {
    fault.run.__name__: fault
    for fault in (
        Fault(kill_a_leader, 5),
        Fault(kill_the_controller, 3),
        Fault(kill_two, 2),
        Fault(kill_all, 2),
        Fault(pause_briefly, 2),
        Fault(pause_longer_than_the_lease, 3),
        Fault(restart, 4),
        Fault(cut_off, 4, NETWORK),
        Fault(cut_off_from_brokers, 3, NETWORK),
        Fault(cut_what_it_sends, 3, NETWORK),
        Fault(cut_what_it_gets, 3, NETWORK),
        Fault(cut_off_from_the_store, 3, NETWORK),
        Fault(kill_a_member_of_etcd, 3, NEEDS_ETCD),
        Fault(kill_all_of_etcd, 1, NEEDS_ETCD),
        Fault(fill_the_disk, 3, SMALL_DISK),
        Fault(fail_writes, 2, FAILING_DISK),
        Fault(fail_syncs, 2, FAILING_DISK),
    )
}
