"""Damage one file of a data directory, start the broker on it, and ask for everything.

    python -m tests.campaigns.corruption --rounds 120 --seed 0
    python -m tests.campaigns.corruption --kind "sealed segment" --damage flip --after kill

Seeds that follow each other go through all kinds of files and damages, after kill -9 and after a clean stop. The
verdict: the broker starts; all that was not touched is served; what was touched is served right or reported, never
wrong, never lost in silence, and no offset is given out twice.
"""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.broker_process import BrokerDidNotStart, BrokerProcess
from tests.campaigns import rounds
from tests.campaigns.known_data import (
    OFFSETS,
    PARTITIONS,
    SETTINGS,
    TABLE,
    TRANSACTIONS,
    VICTIM,
    Known,
    audit,
    write_known_data,
)
from tests.campaigns.rounds import Report

from flymq.model.names import TopicPartition

SECTOR = 512
KILLED, STOPPED = "kill", "stop"


@dataclass(frozen=True)
class Kind:
    """Files of one kind, and what may suffer when one of them is damaged."""

    find: Callable[[Path], Sequence[Path]]
    touches: frozenset[TopicPartition]
    may_refuse: bool = False
    """Whether a broker may refuse to start, with a named error, because all its data depends on the file."""


def _in(topic: str, pattern: str, partition: int = 0) -> Callable[[Path], list[Path]]:
    return lambda data: sorted(data.glob(f"topics/{topic}~*/{partition}/{pattern}"))


def _of_victim(pattern: str, which: slice = slice(None)) -> Kind:
    return Kind(lambda data: _in(VICTIM, pattern)(data)[which], frozenset({TopicPartition(VICTIM, 0)}))


def _in_root(*names: str) -> Callable[[Path], list[Path]]:
    return lambda data: [data / name for name in names if (data / name).exists()]


def _others_in_partition(data: Path) -> list[Path]:
    known = {"checkpoint", "clean", "compacted", "durable", "leader-epochs"}
    return [
        path for path in _in(VICTIM, "*")(data) if path.is_file() and not (path.name in known or _is_numbered(path))
    ]


def _catalog(data: Path) -> list[Path]:
    """The files of the metadata: two images, and journals that follow them."""
    return sorted(data.glob("metadata*"))


def _journals(data: Path) -> list[Path]:
    return sorted(data.glob("metadata.changes-*"))


def _others_in_root(data: Path) -> list[Path]:
    known = {*_catalog(data), data / "lock"}
    return sorted(path for path in data.iterdir() if path.is_file() and path not in known)


def _is_numbered(path: Path) -> bool:
    return path.name[:20].isdigit()


EVERYTHING = frozenset([*PARTITIONS, OFFSETS, TRANSACTIONS])
KINDS: dict[str, Kind] = {
    "active segment": _of_victim("*.log", slice(-1, None)),
    "sealed segment": _of_victim("*.log", slice(1, -1)),
    "first segment": _of_victim("*.log", slice(0, 1)),
    "index": _of_victim("*.index"),
    "time index": _of_victim("*.timeindex"),
    "aborted transactions": _of_victim("*.aborted"),
    "producer snapshot": _of_victim("*.producers"),
    "checkpoint": _of_victim("checkpoint"),
    "leader epochs": _of_victim("leader-epochs"),
    "durable end": _of_victim("durable"),
    "clean marker": _of_victim("clean"),
    "other file of a partition": Kind(_others_in_partition, frozenset({TopicPartition(VICTIM, 0)})),
    "cut-off tail": _of_victim("*.cut-*"),
    "compacted segment": Kind(_in(TABLE, "*.log"), frozenset({TopicPartition(TABLE, 0)})),
    "compacted note": Kind(_in(TABLE, "compacted"), frozenset({TopicPartition(TABLE, 0)})),
    "segment of __offsets": Kind(_in(OFFSETS.topic, "*.log"), frozenset({OFFSETS})),
    "segment of __transactions": Kind(_in(TRANSACTIONS.topic, "*.log"), frozenset({TRANSACTIONS})),
    "catalog": Kind(_in_root("metadata.db"), frozenset()),
    "catalog before": Kind(_in_root("metadata.previous.db"), frozenset()),
    "catalog journal": Kind(_journals, EVERYTHING, may_refuse=True),
    "other file of the broker": Kind(_others_in_root, frozenset()),
    "set-aside records": Kind(_in_root("set-aside/__offsets-0.jsonl"), frozenset()),
    "lock": Kind(_in_root("lock"), frozenset()),
    "partition directory": Kind(_in(VICTIM, ""), frozenset({TopicPartition(VICTIM, 0)})),
    "topic directory": Kind(
        lambda data: sorted(data.glob(f"topics/{VICTIM}~*")),
        frozenset({TopicPartition(VICTIM, 0), TopicPartition(VICTIM, 1)}),
    ),
}
ONLY_AFTER = {"clean marker": STOPPED}
OPTIONAL = {"leader epochs", "other file of a partition", "other file of the broker", "catalog before"}
"""Kinds that this version of the broker may not have, or not always."""
DIRECTORIES = {"partition directory", "topic directory"}


# --- damages ---------------------------------------------------------------------------------------------------------


def flip(path: Path, chance: Random) -> str:
    """Flip one bit."""
    data = bytearray(path.read_bytes())
    at, bit = chance.randrange(len(data)), chance.randrange(8)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {at} of {len(data)} flipped"


def zero(path: Path, chance: Random) -> str:
    """Fill a sector with zeros, as a disk does that has lost it. Choose one that is not zero already."""
    data = bytearray(path.read_bytes())
    sectors = [at for at in range(0, len(data), SECTOR) if any(data[at : at + SECTOR])]
    if not sectors:
        return flip(path, chance)
    at = chance.choice(sectors)
    data[at : at + SECTOR] = bytes(len(data[at : at + SECTOR]))
    path.write_bytes(data)
    return f"sector at byte {at} of {len(data)} zeroed"


def truncate(path: Path, chance: Random) -> str:
    """Cut the file off anywhere."""
    data = path.read_bytes()
    size = chance.randrange(len(data))
    path.write_bytes(data[:size])
    return f"{len(data)} bytes cut to {size}"


def remove(path: Path, _chance: Random) -> str:
    """Remove the file, or the directory."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    return "removed"


DAMAGES: dict[str, Callable[[Path, Random], str]] = {
    "flip": flip,
    "zero": zero,
    "truncate": truncate,
    "remove": remove,
}


def all_cases() -> list[tuple[str, str, str]]:
    """Return every kind with every damage that fits it, after a kill and after a clean stop."""
    return [
        (kind, damage, after)
        for kind in KINDS
        for damage in DAMAGES
        for after in (KILLED, STOPPED)
        if ONLY_AFTER.get(kind, after) == after and (damage == "remove" or kind not in DIRECTORIES)
    ]


# --- one case --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """Data directories to copy: of a broker that was killed, and of one that was stopped."""

    folder: Path
    known: Known

    def copy(self, after: str, target: Path) -> None:
        shutil.copytree(self.folder / after, target)


def make_template(folder: Path) -> Template:
    """Let a broker write known data; keep what it leaves behind after kill -9 and after a clean stop."""
    broker = BrokerProcess(folder / KILLED, SETTINGS, log=folder / "broker.log")
    try:
        known = write_known_data(broker)
    finally:
        broker.kill()
    _leave_behind(folder / KILLED)
    shutil.copytree(folder / KILLED, folder / STOPPED)
    broker = BrokerProcess(folder / STOPPED, SETTINGS, log=folder / "broker.log")
    assert broker.stop() == 0, broker.log_text
    return Template(folder, known)


def _leave_behind(data: Path) -> None:
    """What earlier crashes and unreadable records leave behind for people to look at."""
    partition = _in(VICTIM, "")(data)[0]
    (partition / f"{0:020}.log.cut-123").write_bytes(b"what recovery once cut off" * 20)
    (data / "set-aside").mkdir(exist_ok=True)
    (data / "set-aside" / "__offsets-0.jsonl").write_text('{"offset": 1, "reason": "x", "key": null, "value": null}\n')


@cache
def template() -> Template:
    """The template of this process."""
    folder = Path(tempfile.mkdtemp(prefix="flymq-known-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return make_template(folder)


def corrupt(made: Template, seed: int, folder: Path, kind_name: str, damage: str, after: str) -> Report:
    """Damage one file and look at what the broker makes of it."""
    chance, kind, data = Random(seed), KINDS[kind_name], folder / "data"
    made.copy(after, data)
    figures: dict[str, object] = {"kind": f"{kind_name:25}", "damage": damage, "after": after}
    files = [path for path in kind.find(data) if damage == "remove" or path.stat().st_size]
    if not files:
        assert kind_name in OPTIONAL, f"there is no {kind_name}"
        return Report([], {**figures, "reports": "no such file"})
    path = chance.choice(files)
    done = f"{path.relative_to(data)}: {DAMAGES[damage](path, chance)}"
    (folder / "damage.txt").write_text(done + "\n")
    try:
        broker = BrokerProcess(data, SETTINGS, log=folder / "broker.log")
    except BrokerDidNotStart as error:
        violations = _judge_refusal(made, kind, folder, after, str(error))
        return Report([f"{violation} ({done})" for violation in violations], {**figures, "reports": "does not start"})
    try:
        found = audit(broker, made.known, set(kind.touches))
        violations = found.violations
        if kind.may_refuse and _names_lost_topics(data, broker.log_text):
            violations = [each for each in violations if not each.startswith(MISSING)]
        if not broker.is_running:
            violations.append("the broker has ended")
        elif broker.stop() != 0:
            violations.append("the broker did not stop in good order")
        if "Traceback" in broker.log_text:
            violations = [*violations, "the broker's log has a traceback"]
    finally:
        if broker.is_running:
            broker.kill()
    return Report([f"{violation} ({done})" for violation in violations], {**figures, "reports": len(found.reports)})


def _judge_refusal(made: Template, kind: Kind, folder: Path, after: str, said: str) -> list[str]:
    """A refusal must be allowed, say why in words, and have changed nothing: with the file put back, all is there."""
    if not kind.may_refuse:
        return [f"does not start: {said[-300:]}"]
    if "Traceback" in said:
        return [f"does not start, and dies with a traceback: {said[-300:]}"]
    for path in _catalog(folder / "data"):
        path.unlink()
    for path in _catalog(made.folder / after):
        shutil.copy2(path, folder / "data" / path.name)
    broker = BrokerProcess(folder / "data", SETTINGS, log=folder / "broker.log")
    try:
        return audit(broker, made.known, set()).violations
    finally:
        broker.kill()


MISSING = ("not served", "commit went back", "fencing lost")


def _names_lost_topics(data: Path, log: str) -> bool:
    """Whether the log warns of the directory of every topic: the catalog is lost, and everybody can know."""
    warnings = "\n".join(line for line in log.splitlines() if "WARNING" in line or "ERROR" in line)
    return all(path.name in warnings for path in data.glob("topics/*~*"))


# --- the campaign ----------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    cases = all_cases()
    parser = rounds.options("corruption", __doc__ or "", rounds=len(cases))
    parser.set_defaults(seed=0)
    parser.add_argument("--kind", choices=list(KINDS), help="kind of file; all in turn")
    parser.add_argument("--damage", choices=list(DAMAGES), help="damage; all in turn")
    parser.add_argument("--after", choices=[KILLED, STOPPED], help="how the broker ended; both in turn")

    def run_round(seed: int, folder: Path, given: argparse.Namespace) -> Report:
        wanted = (given.kind, given.damage, given.after)
        fitting = [case for case in cases if all(want in (None, has) for want, has in zip(wanted, case, strict=True))]
        return corrupt(template(), seed, folder, *fitting[seed % len(fitting)])

    return rounds.run(parser, run_round, arguments)


if __name__ == "__main__":
    sys.exit(main())
