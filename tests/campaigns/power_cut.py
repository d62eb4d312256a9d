"""Cut the power under a broker that is being written to; nothing acknowledged may be lost.

    python -m tests.campaigns.power_cut --rounds 20 --seed 7

Each round has a file system of its own, mounted from a file, which loses all that was not synced (loop_disk.py), and
the clients of the crash campaign. Where this cannot be done, for lack of root, the rounds run on the simulated disk,
which loses power at any byte: `--disk simulated`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.broker_process import BrokerProcess
from tests.campaigns import rounds
from tests.campaigns.clients import ALL_CLIENTS
from tests.campaigns.crash import READERS, SETTINGS, Scene
from tests.campaigns.loop_disk import MOUNT_OPTIONS, LoopDisk, loop_disk, why_not
from tests.campaigns.rounds import Report
from tests.simulation.test_producers_simulated import producers_survive
from tests.simulation.test_transactions_simulated import transactions_survive

from flymq.host.virtual_time import run

LOOP, SIMULATED = "loop", "simulated"


def cut_power(seed: int, folder: Path, *, cuts: int) -> Report:
    """Run one round on a file system of its own."""
    chance = Random(seed)
    options = chance.choice(MOUNT_OPTIONS)
    # Readers of a `disk` topic may see what is not on the disk yet and be surprised; those of `fsync` topics never.
    persistence = chance.choice(["fsync", "fsync", "disk"])
    kinds = [kind for kind in ALL_CLIENTS if persistence == "fsync" or kind not in READERS]
    with loop_disk(folder, options) as disk:
        broker = BrokerProcess(disk.path / "data", SETTINGS, log=folder / "broker.log")
        try:
            scene = Scene(broker, seed, kinds)
            scene.begin(persistence)
            for _ in range(cuts):
                time.sleep(chance.uniform(0.1, 1.5))  # a power cut has no condition to wait for
                _cut(disk, broker, chance)
                broker.start()
                scene.see_commits()
            report = scene.finish()
            code = broker.stop()
            if code != 0:
                report.violations.append(f"the broker ended with {code} after SIGTERM")
        finally:
            if broker.is_running:
                broker.kill()
    report.figures = {"options": options, "topics": persistence, **report.figures}
    return report


def _cut(disk: LoopDisk, broker: BrokerProcess, chance: Random) -> None:
    """Half of the brokers die with the disk, the others see its errors for a moment."""
    if chance.random() < 0.5:
        broker.kill()
        disk.cut_power()
    else:
        # Paused, so that no fsync is under way. ext4 may answer such a one with success, although the journal was lost
        # before it had the new size of the file: a lie that no power failure tells, since nobody runs on.
        broker.pause()
        disk.cut_power()
        broker.resume()
        time.sleep(chance.uniform(0, 0.3))
        broker.kill()
    disk.restore_power()


def simulate(seed: int) -> Report:
    """Run one round in virtual time, on a disk that loses power at any byte."""
    try:
        run(producers_survive(seed))
        run(transactions_survive(seed))
    except AssertionError as error:
        return Report([str(error)], {"disk": SIMULATED})
    return Report([], {"disk": SIMULATED})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = rounds.options("power_cut", __doc__ or "")
    parser.add_argument("--cuts", type=int, default=5, help="power cuts in each round")
    parser.add_argument("--disk", choices=[LOOP, SIMULATED], help="what to cut; loop where this machine allows it")
    reasons: list[str | None] = []

    def run_round(seed: int, folder: Path, given: argparse.Namespace) -> Report:
        if given.disk is None and not reasons:
            reasons.append(why_not(folder))
            if reasons[0] is not None:
                print(f"on the simulated disk: {reasons[0]}")
        if given.disk == SIMULATED or (given.disk is None and reasons[0] is not None):
            return simulate(seed)
        return cut_power(seed, folder, cuts=given.cuts)

    return rounds.run(parser, run_round, arguments)


if __name__ == "__main__":
    sys.exit(main())
