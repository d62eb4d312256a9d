"""Check and repair the logs of a broker that does not run, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flymq.cluster.image import Topic
from flymq.host.host import Host
from flymq.model.delivery import Persistence
from flymq.model.errors import PartitionNotFound, UncleanShutdown
from flymq.model.names import TopicPartition
from flymq.server.stopped_broker import StoppedBroker, stopped_broker
from flymq.storage.recovery.checkpoint import CLEAN_NAME
from flymq.storage.repair.readopt import append_again, find_cuts, readopt
from flymq.storage.repair.salvage import LogExamined, examine_log, rebuild, salvage


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a partition."""

    partition: TopicPartition
    file: Path
    position: int
    offsets: tuple[int, int]
    """Half-open."""
    problem: str
    is_mendable: bool = False
    """Whether the batch can be restored as it was."""

    @property
    def lost_offsets(self) -> int:
        return 0 if self.is_mendable else self.offsets[1] - self.offsets[0]


@dataclass(slots=True)
class Repaired:
    """What was found in the partitions, and where what was taken out is kept."""

    checked: int = 0
    """Number of partitions."""
    findings: list[Finding] = field(default_factory=list)
    kept_aside: list[Path] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TakenBack:
    """What became of one file with bytes that recovery had cut off."""

    partition: TopicPartition
    file: Path
    records: int
    outcome: str


async def check_logs(host: Host, data_dir: Path, wanted: Sequence[TopicPartition]) -> Repaired:
    """Read the logs of these partitions, or of all, and report what is wrong. Changes nothing."""
    result = Repaired()
    async with stopped_broker(host, data_dir) as broker:
        for name, _, directory in _partitions(broker, wanted):
            result.checked += 1
            result.findings += _findings(name, examine_log(host.disk, directory))
    return result


async def salvage_logs(host: Host, data_dir: Path, wanted: Sequence[TopicPartition], *, dry_run: bool) -> Repaired:
    """Make these partitions whole: mend flipped bits, take out what is damaged, accept what is missing."""
    result = Repaired()
    async with stopped_broker(host, data_dir) as broker:
        for name, _, directory in _partitions(broker, wanted):
            result.checked += 1
            found = examine_log(host.disk, directory)
            findings = _findings(name, found)
            result.findings += findings
            if findings and not dry_run:
                result.kept_aside += salvage(host.disk, found)
    return result


async def rebuild_logs(host: Host, data_dir: Path, wanted: Sequence[TopicPartition]) -> int:
    """Remove what is derived from the segments of these partitions, or of all. The next start builds it again."""
    count = 0
    async with stopped_broker(host, data_dir) as broker:
        for _, _, directory in _partitions(broker, wanted):
            count += 1
            rebuild(host.disk, directory)
    return count


async def readopt_logs(
    host: Host, data_dir: Path, wanted: Sequence[TopicPartition], *, as_new: bool, dry_run: bool
) -> list[TakenBack]:
    """Take back what recovery cut off in these partitions, or in all.

    What cannot return to its offsets stays where it is, or is written again at the end if `as_new` is set.
    """
    results: list[TakenBack] = []
    async with stopped_broker(host, data_dir) as broker:
        for name, topic, directory in _partitions(broker, wanted):
            cuts = find_cuts(host.disk, directory)
            fitting, others = [c for c in cuts if c.fits and c.runs], [c for c in cuts if not c.fits and c.runs]
            if cuts and not dry_run and not host.disk.exists(directory / CLEAN_NAME):
                raise UncleanShutdown(f"{name} was not closed cleanly")
            if fitting and not dry_run:
                readopt(host.disk, directory, fitting)
            results += [TakenBack(name, cut.path, cut.records, "returns to its offsets") for cut in fitting]
            if others and as_new and not dry_run:
                append_again(host.disk, directory, topic.config, others, now_ms=host.clock.now_ms())
            results += [TakenBack(name, cut.path, cut.records, _outcome(as_new=as_new)) for cut in others]
            results += [TakenBack(name, cut.path, 0, "holds no whole batch") for cut in cuts if not cut.runs]
    return results


def _outcome(*, as_new: bool) -> str:
    return "written again, as new records" if as_new else "its offsets belong to other records now; see --as-new"


def _partitions(
    broker: StoppedBroker, wanted: Sequence[TopicPartition]
) -> Iterator[tuple[TopicPartition, Topic, Path]]:
    """Yield the partitions on disk that are wanted; all when none is named."""
    for name in wanted:
        topic = broker.image.find(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            raise PartitionNotFound(
                f"there is no partition {name}", hint="Names are as in the log of the broker: orders-0."
            )
    for topic in broker.image:
        if topic.config.persistence is Persistence.MEMORY:
            continue
        for number in range(len(topic.partitions)):
            name = TopicPartition(topic.name, number)
            if not wanted or name in wanted:
                yield name, topic, broker.directory.path_of(name, topic.topic_id)


def _findings(name: TopicPartition, found: LogExamined) -> list[Finding]:
    findings = [
        Finding(name, path, part.start, part.offsets, part.reason, is_mendable=part.mended is not None)
        for path, part in found.damaged
    ]
    findings += [
        Finding(name, found.directory, 0, offsets, "the records of these offsets are missing")
        for offsets in found.missing
    ]
    return sorted(findings, key=lambda finding: finding.offsets)
