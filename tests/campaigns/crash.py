"""Kill -9 the broker at random moments while clients of both protocols write, read and commit.

    python -m tests.campaigns.crash --rounds 20 --seed 7

Every round is a broker with two topics, idempotent and transactional producers of librdkafka and of the SDK, and a
group of readers of each. The broker is killed and started again on the same data, again and again; then everybody
finishes what they have begun, and everything that was said is compared with the log.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

from tests.broker_process import BrokerProcess
from tests.campaigns import rounds
from tests.campaigns.clients import (
    ALL_CLIENTS,
    GIVE_UP_S,
    SDK,
    Client,
    ImpatientSdkWriter,
    KafkaReader,
    SdkReader,
    read_log,
    see_commits,
)
from tests.campaigns.history import History
from tests.campaigns.rounds import Report

from flymq import FlyMQClient

TOPICS = ("orders", "payments")
PARTITIONS = 2
SETTINGS = {
    "storage.checkpoint_interval_ms": 700,  # so that kills also meet checkpoints
    "groups.internal_partitions": 2,
}
READERS = (KafkaReader, SdkReader)


class Scene:
    """A broker, its clients and their history."""

    def __init__(self, broker: BrokerProcess, seed: int, kinds: Sequence[type[Client]]) -> None:
        self.address = broker.address
        self.history = History()
        self.clients = [kind(kind.__name__, self.address, TOPICS, self.history, seed) for kind in kinds]

    def begin(self, persistence: str = "fsync") -> None:
        self.begin_with({"persistence": persistence, "segment.bytes": 200_000})

    def begin_with(self, settings: dict[str, str | int | None]) -> None:
        with FlyMQClient(self.address, **SDK) as client:
            for topic in TOPICS:
                client.create_topic(topic, partitions=PARTITIONS, settings=settings)
        for client_thread in self.clients:
            client_thread.start()

    def see_commits(self) -> None:
        see_commits(self.address, [reader.group for reader in READERS], self.history)

    def finish(self) -> Report:
        """Let everybody finish, and compare."""
        writers = [client for client in self.clients if not isinstance(client, READERS)]
        readers = [client for client in self.clients if isinstance(client, READERS)]
        failures = _join(writers)
        committed = read_log(self.address, TOPICS, "read_committed")
        visible = {value for records in committed.values() for _, value in records}
        for reader in readers:
            reader.is_enough = partial(visible.issubset, self.history.delivered[reader.group])
        failures += _join(readers)
        self.see_commits()
        everything = read_log(self.address, TOPICS, "read_uncommitted")
        violations = [*failures, *self.history.violations(committed, everything)]
        for reader in readers:
            violations += self.history.undelivered(reader.group, committed)
        figures: dict[str, object] = {
            "written": len(self.history.writes),
            "acknowledged": self.history.acknowledged,
            "transactions": len(self.history.transactions),
            "client errors": sum(client.errors for client in self.clients),
        }
        return Report(violations, figures)


def _join(clients: Sequence[Client]) -> list[str]:
    for client in clients:
        client.stop()
    deadline = time.monotonic() + GIVE_UP_S
    for client in clients:
        client.join(max(0.1, deadline - time.monotonic()))
    stuck = [f"client failed: {client.name} did not come to its end" for client in clients if client.is_alive()]
    return stuck + [failure for client in clients for failure in client.failures]


def crash(seed: int, folder: Path, *, kills: int, impatient: bool = False) -> Report:
    """Run one round."""
    chance = Random(seed)
    kinds = [*ALL_CLIENTS, ImpatientSdkWriter] if impatient else ALL_CLIENTS
    broker = BrokerProcess(folder / "data", SETTINGS, log=folder / "broker.log")
    try:
        scene = Scene(broker, seed, kinds)
        scene.begin(persistence=chance.choice(["fsync", "disk"]))
        for _ in range(kills):
            time.sleep(chance.uniform(0.1, 1.5))  # a kill has no condition to wait for
            broker.kill()
            if impatient:
                time.sleep(chance.uniform(0, 1.5))
            broker.start()
            scene.see_commits()
        report = scene.finish()
        code = broker.stop()
        if code != 0:
            report.violations.append(f"the broker ended with {code} after SIGTERM")
        if "Traceback" in broker.log_text:
            report.violations.append("the broker's log has a traceback")
        return report
    finally:
        if broker.is_running:
            broker.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = rounds.options("crash", __doc__ or "")
    parser.add_argument("--kills", type=int, default=8, help="kills in each round")

    def run_round(seed: int, folder: Path, given: argparse.Namespace) -> Report:
        return crash(seed, folder, kills=given.kills, impatient=seed % 2 == 1)

    return rounds.run(parser, run_round, arguments)


if __name__ == "__main__":
    sys.exit(main())
