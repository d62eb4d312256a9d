"""A cluster of three brokers under fire, while clients of both protocols write, read and commit.

    python -m tests.campaigns.cluster --minutes 30 --seed 7

Every round is a cluster with two topics of three replicas, two of which have to be in sync, and producers and groups of
librdkafka and of the SDK. One fault follows another (cluster_faults.py): brokers are killed, paused and restarted, cut
off from each other where there are network namespaces, their disks are full or fail, members of etcd are killed where
there is a current etcd. Then everybody finishes what they have begun, everything that was said is compared with the
log, and the files of the replicas with each other. The last table shows how long writes paused.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import median

from tests.campaigns import failing_disk, namespaces, rounds
from tests.campaigns.clients import ALL_CLIENTS, GIVE_UP_S, Client
from tests.campaigns.cluster_faults import (
    FAILING_DISK,
    FAULTS,
    LEASE_S,
    NEEDS_ETCD,
    NETWORK,
    SMALL_DISK,
    Site,
)
from tests.campaigns.crash import TOPICS, Scene
from tests.campaigns.history import History
from tests.campaigns.rounds import Report
from tests.cluster.brokers import Brokers, EtcdStore, Place
from tests.etcd_process import current, running_etcd

from flymq import FlyMQClient
from flymq.errors import FlyMQError
from flymq.model.names import TopicPartition

SERVED, ETCD = "served", "etcd"
SETTINGS = {
    "cluster.session_timeout_ms": LEASE_S * 1000,
    "replication.lag_max_ms": 3_000,
    "storage.checkpoint_interval_ms": 700,
    "groups.internal_partitions": 4,
}
SMALL_DISK_BYTES = 1 << 30


@dataclass
class TimedHistory(History):
    """A history that knows when records were acknowledged."""

    acknowledged_s: defaultdict[TopicPartition, list[float]] = field(default_factory=lambda: defaultdict(list))

    def acknowledge(self, value: bytes, partition: TopicPartition, offset: int) -> None:
        self.acknowledged_s[partition].append(time.monotonic())
        super().acknowledge(value, partition, offset)

    def longest_pause_s(self, since_s: float, until_s: float) -> float:
        """Return how long no write to some partition was acknowledged, at the longest."""
        return max(
            later - earlier
            for times in self.acknowledged_s.values()
            for earlier, later in pairwise([since_s, *(each for each in times if since_s < each < until_s), until_s])
        )


class EndWatcher(Client):
    """Asks for the end of each partition again and again: it never goes back."""

    def work(self) -> None:
        ends: dict[TopicPartition, int] = {}
        with FlyMQClient(self.address, request_timeout_ms=5_000) as client:
            while not self.is_stopping:
                for topic in self.topics:
                    try:
                        found = client.admin.latest_offsets(topic)
                    except FlyMQError:
                        self.errors += 1
                        continue
                    for name, end in found.items():
                        if end < ends.get(name, 0):
                            self.failures.append(f"the end went back: {name} from {ends[name]} to {end}")
                        ends[name] = end
                self.pause(0.2)


# --- where a round takes place


@contextmanager
def site_of(folder: Path, chance: Random, store: str) -> Iterator[Site]:
    """Run three brokers, with as much that can be done to them as this machine allows."""
    with ExitStack() as stack:
        network = None if namespaces_missing() else stack.enter_context(namespaces.namespaces([1, 2, 3]))
        members, of_brokers = [], None
        if store == ETCD:
            program = current()
            assert program is not None, "there is no current etcd: run `make etcd`"
            host = "127.0.0.1" if network is None else network.store_address
            members = stack.enter_context(running_etcd(program, folder, members=3, host=host))
            of_brokers = EtcdStore([member.client_url for member in members])
        disk = None if failing_disk.why_not() else failing_disk.FailingDisk(folder / "2", folder / "disk-2")
        small = 3 if namespaces_missing() is None and _mount(folder / "3", stack) else None

        def place(number: int) -> Place:
            at = Place() if network is None else network.place(number)
            return Place(at.host, at.within, disk.environ) if disk is not None and number == 2 else at

        brokers = Brokers(folder, settings=SETTINGS, store=of_brokers, place=place)
        stack.callback(brokers.kill)
        yield Site(brokers, TOPICS, chance, network, members, small, None if disk is None else (2, disk))


def _mount(folder: Path, stack: ExitStack) -> bool:
    """Mount a small disk, in memory."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "flymq-campaign", str(folder)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        return False
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], capture_output=True)
    return True


@cache
def namespaces_missing() -> str | None:
    return namespaces.why_not()


# --- a round


Pauses = dict[str, list[float]]
"""Longest pause of acknowledged writes to a partition, by the name of the fault."""


def fight(seed: int, folder: Path, *, faults: Sequence[str], store: str = SERVED) -> tuple[Report, Pauses]:
    """Run one round with these faults."""
    chance = Random(seed)
    pauses: Pauses = {}
    with site_of(folder, chance, store) as site:
        scene = ClusterScene(site, seed)
        persistence = chance.choice(["disk", "fsync"])
        scene.begin(persistence)
        site.brokers.until_in_sync(TOPICS[0])
        for name in faults:
            with (folder / "faults").open("a") as diary:
                diary.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {name}\n")
            scene.warm_up()
            since_s = time.monotonic()
            FAULTS[name].run(site)
            scene.until_recovered()
            scene.see_commits()
            pauses.setdefault(FAULTS[name].name, []).append(scene.history.longest_pause_s(since_s, time.monotonic()))
        report = scene.finish()
        report.violations += [*site.notes, *scene.replicas_differ(), *_stop(site.brokers)]
    report.figures = {"store": store, "topics": persistence, "faults": len(faults), **report.figures}
    return report, pauses


class ClusterScene(Scene):
    """Three brokers, their clients and their history."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.address = site.brokers.addresses
        self.history: TimedHistory = TimedHistory()
        kinds = [*ALL_CLIENTS, EndWatcher]
        self.clients = [kind(kind.__name__, self.address, TOPICS, self.history, seed) for kind in kinds]

    def begin(self, persistence: str = "disk") -> None:
        self.begin_with({"persistence": persistence, "segment.bytes": 2_000_000, "min.insync.replicas": 2})

    def warm_up(self) -> None:
        """Wait until a few records have been acknowledged, so that a fault meets busy clients."""
        before = len(self.history.places)
        _until(lambda: len(self.history.places) > before + 100, "records are acknowledged")

    def until_recovered(self) -> None:
        for topic in TOPICS:
            self.site.brokers.until_in_sync(topic)
        self.warm_up()

    def replicas_differ(self) -> Iterator[str]:
        """Yield the partitions whose replicas do not come to have the same bytes."""
        for topic in TOPICS:
            for number in range(len(self.site.brokers.topic(topic).partitions)):
                contents: list[bytes] = []
                deadline_s = time.monotonic() + GIVE_UP_S
                while time.monotonic() < deadline_s and (len(contents) < 3 or contents.count(contents[0]) < 3):
                    contents = [_log_of(broker.data_dir, topic, number) for broker in self.site.brokers]
                    time.sleep(0.1)
                if contents.count(contents[0]) < 3:
                    yield f"replicas differ: {topic}-{number} has {[len(each) for each in contents]} bytes"


def _log_of(data_dir: Path, topic: str, partition: int) -> bytes:
    """Return the batches of a replica, whatever segments they are in."""
    files = sorted(data_dir.glob(f"topics/{topic}~*/{partition}/*.log"))
    return b"".join(file.read_bytes() for file in files)


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < deadline_s, f"{what}: not within {GIVE_UP_S} s"
        time.sleep(0.01)


def _stop(brokers: Brokers) -> Iterator[str]:
    for number, broker in enumerate(brokers, start=1):
        code = broker.stop()
        if code != 0:
            yield f"broker {number} ended with {code} after SIGTERM"
        if "Traceback" in broker.log_text:
            yield f"the log of broker {number} has a traceback"


# --- from the command line


def possible_faults(store: str) -> list[str]:
    """Return the names of the faults that can be had here."""
    has_network, has_etcd = namespaces_missing() is None, store == ETCD
    has = {
        "": True,
        NETWORK: has_network and has_etcd,  # a store that is served here is on the machine of each broker
        NEEDS_ETCD: has_etcd,
        SMALL_DISK: has_network,  # both need root
        FAILING_DISK: failing_disk.why_not() is None,
    }
    return [name for name, fault in FAULTS.items() if has[fault.needs]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = rounds.options("cluster", __doc__ or "")
    parser.add_argument("--faults", type=int, default=6, help="faults in each round")
    parser.add_argument("--only", choices=list(FAULTS), action="append", help="these faults; repeatable")
    parser.add_argument("--store", choices=[SERVED, ETCD], help="the metadata store; both in turn, if there is an etcd")
    for reason in (namespaces_missing(), failing_disk.why_not(), None if current() else "there is no current etcd"):
        if reason is not None:
            print(f"some faults are left out: {reason}")
    pauses: defaultdict[str, list[float]] = defaultdict(list)

    def run_round(seed: int, folder: Path, given: argparse.Namespace) -> Report:
        stores = [given.store] if given.store else [SERVED, ETCD] if current() else [SERVED]
        store = stores[seed % len(stores)]
        possible = [name for name in possible_faults(store) if not given.only or name in given.only]
        weights = [FAULTS[name].weight for name in possible]
        faults = Random(f"faults {seed}").choices(possible, weights, k=given.faults)
        report, found = fight(seed, folder, faults=faults, store=store)
        for name, seconds in found.items():
            pauses[name] += seconds
        return report

    logging.getLogger("flymq").setLevel(logging.ERROR)  # clients report what matters
    code = rounds.run(parser, run_round, arguments)
    print("\nlongest pause of acknowledged writes to a partition, in seconds: median and maximum")
    for name, seconds in sorted(pauses.items()):
        print(f"{name:32} {len(seconds):4} times  {median(seconds):6.2f} {max(seconds):6.2f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
