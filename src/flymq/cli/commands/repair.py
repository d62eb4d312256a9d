"""`flymq repair`: put a data directory in order while its broker is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from flymq.cli.exit_codes import ExitCode
from flymq.cli.options import Noun, wants_json
from flymq.cli.output import counted, note, show
from flymq.host.host import system_host
from flymq.model.names import TopicPartition
from flymq.server.repair_catalog import CatalogRepair, repair_catalog
from flymq.server.repair_internal_topics import repair_internal_topics
from flymq.server.repair_logs import Finding, check_logs, readopt_logs, rebuild_logs, salvage_logs


@click.group(cls=Noun)
def repair() -> None:
    """Check and repair a data directory whose broker is stopped."""


class _Partition(click.ParamType[TopicPartition]):
    """TOPIC-NUMBER, as everywhere in logs and /health."""

    name = "partition"

    def convert(self, value: object, param: click.Parameter | None, context: click.Context | None) -> TopicPartition:
        topic, separator, number = str(value).rpartition("-")
        if not separator or not number.isdecimal():
            self.fail(f"{value!r} is not TOPIC-NUMBER, such as orders-0.", param, context)
        return TopicPartition(topic, int(number))


data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("flymq-data"),
    help="Data directory.  [default: flymq-data]",
)
some_partitions = click.argument("partitions", nargs=-1, type=_Partition(), metavar="[PARTITION...]")


@repair.command()
@some_partitions
@data_dir_option
def check(partitions: tuple[TopicPartition, ...], data_dir: Path) -> None:
    """Read every batch of the partitions, such as orders-0, or of all, and report what is damaged.

    Changes nothing. The exit code is 1 if something is damaged.
    """
    found = asyncio.run(check_logs(system_host(), data_dir, partitions))
    _show_findings(found.findings)
    checked = counted(found.checked, "partition")
    if not found.findings:
        note(f"Checked {checked}: all batches are whole.")
        return
    names = " ".join(sorted({str(finding.partition) for finding in found.findings}))
    note(f"Checked {checked}. To repair: flymq repair salvage {names} --data-dir {data_dir}")
    raise click.exceptions.Exit(ExitCode.FAILED)


@repair.command()
@click.argument("partitions", nargs=-1, required=True, type=_Partition(), metavar="PARTITION...")
@data_dir_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def salvage(partitions: tuple[TopicPartition, ...], data_dir: Path, dry_run: bool) -> None:
    """Make damaged partitions, such as orders-0, whole again, so that the broker can open them.

    Batches with one flipped bit are restored. Other damaged bytes are moved to files beside the segments, whose names
    contain .bad-; readers skip their offsets, which are not used again. All other records keep their offsets.
    """
    found = asyncio.run(salvage_logs(system_host(), data_dir, partitions, dry_run=dry_run))
    _show_findings(found.findings)
    if not found.findings:
        note("Nothing to repair: all batches are whole.")
        return
    mended = counted(sum(finding.is_mendable for finding in found.findings), "batch", "batches")
    lost = counted(sum(finding.lost_offsets for finding in found.findings), "offset")
    if dry_run:
        note(f"Would restore {mended} and give up {lost}. Run without --dry-run to do it.")
        return
    note(f"Restored {mended}, gave up {lost}.")
    for path in found.kept_aside:
        note(f"Kept: {path}")


@repair.command()
@some_partitions
@data_dir_option
@click.option("--as-new", is_flag=True, help="Append records whose offsets are taken at the end, as new records.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def readopt(partitions: tuple[TopicPartition, ...], data_dir: Path, as_new: bool, dry_run: bool) -> None:
    """Take back records that recovery cut off as torn, of these partitions or of all.

    After a crash, the broker cuts off the damaged end of a log and keeps it in files whose names contain .cut-. Whole
    batches in there return to their offsets, unless new records were written there since.
    """
    found = asyncio.run(readopt_logs(system_host(), data_dir, partitions, as_new=as_new, dry_run=dry_run))
    rows = [(each.partition, each.file.name, each.records, each.outcome) for each in found]
    data = [
        {"partition": str(name), "file": file, "records": records, "outcome": outcome}
        for name, file, records, outcome in rows
    ]
    if rows or wants_json():
        show(data, [("PARTITION", "FILE", "RECORDS", "OUTCOME"), *rows])
    if not rows:
        note("Nothing was cut off.")
    elif dry_run:
        note("Run without --dry-run to do it.")


@repair.command()
@some_partitions
@data_dir_option
def rebuild(partitions: tuple[TopicPartition, ...], data_dir: Path) -> None:
    """Remove indexes, checkpoints and snapshots of these partitions, or of all.

    The broker does this by itself if it finds them damaged. At its next start it builds them from the records, which it
    reads and checks.
    """
    count = asyncio.run(rebuild_logs(system_host(), data_dir, partitions))
    note(f"The next start reads {counted(count, 'partition')} and builds indexes, checkpoints and snapshots.")


def _show_findings(findings: Sequence[Finding]) -> None:
    rows = [
        (
            found.partition,
            found.file.name if found.file.suffix else "",
            found.position,
            _offsets(found),
            found.problem,
            "restore" if found.is_mendable else "give up",
        )
        for found in findings
    ]
    data = [
        {
            "partition": str(found.partition),
            "file": str(found.file),
            "position": found.position,
            "start_offset": found.offsets[0],
            "end_offset": found.offsets[1],
            "problem": found.problem,
            "restorable": found.is_mendable,
        }
        for found in findings
    ]
    if rows or wants_json():
        show(data, [("PARTITION", "FILE", "BYTE", "OFFSETS", "PROBLEM", "SALVAGE"), *rows])


def _offsets(found: Finding) -> str:
    start, end = found.offsets
    return f"{start}-{end - 1}" if end > start else f"{start}-"


@repair.command("internal-topics")
@data_dir_option
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
def internal_topics(data_dir: Path, dry_run: bool) -> None:
    """Remove unreadable records from the internal topics.

    A broker skips such records at every start. Groups, committed offsets and transactions that can be read are kept;
    the removed records are copied to DIR/set-aside first.
    """
    found = asyncio.run(repair_internal_topics(system_host(), data_dir, dry_run=dry_run))
    rows = [(each.name, record.offset, record.reason) for each in found for record in each.unreadable]
    data = [{"partition": str(name), "offset": offset, "reason": reason} for name, offset, reason in rows]
    if rows or wants_json():
        show(data, [("PARTITION", "OFFSET", "REASON"), *rows])
    kept = counted(sum(each.kept for each in found), "readable record")
    if not rows:
        note(f"Nothing to repair: the internal topics have {kept} and no others.")
    elif dry_run:
        note(f"Would remove {counted(len(rows), 'record')} and keep {kept}. Run without --dry-run to do it.")
    else:
        note(f"Removed {counted(len(rows), 'record')}, kept {kept}. A copy is in {data_dir / 'set-aside'}.")


@repair.command()
@data_dir_option
@click.option("--broker-id", type=int, default=0, metavar="N", help="Broker id of adopted topics.  [default: 0]")
@click.option("--recreate-missing", is_flag=True, help="Let partitions whose files are gone start empty.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
def catalog(data_dir: Path, broker_id: int, recreate_missing: bool, dry_run: bool) -> None:
    """Restore the metadata and adopt topics that it does not know.

    For a broker that does not start because its metadata cannot be read (CORRUPT_METADATA) or is missing
    (CATALOG_LOST). Whatever can be read is restored, from images and journals; topic folders that are unknown to it are
    adopted, by their notes, else by their names and with default settings. Damaged files are kept as damaged-*.
    """
    found = asyncio.run(
        repair_catalog(system_host(), data_dir, broker_id=broker_id, recreate_missing=recreate_missing, dry_run=dry_run)
    )
    rows = _catalog_rows(found, recreate_missing=recreate_missing)
    if rows or wants_json():
        show([{"what": what, "name": name} for what, name in rows], [("WHAT", "NAME"), *rows])
    if not rows:
        note("Nothing to repair: the metadata is whole and knows every topic.")
    elif dry_run:
        note("Nothing was changed. Run without --dry-run to do it.")
    else:
        note(f"Adopted {counted(len(found.adopted), 'topic')}.")


def _catalog_rows(found: CatalogRepair, *, recreate_missing: bool) -> list[tuple[str, str]]:
    rows = [("restored", problem) for problem in found.restored]
    rows += [("lost", each) for each in found.lost]
    for topic in found.adopted:
        rows.append(("adopted, default settings" if topic.name in found.guessed else "adopted", topic.name))
    rows += [("left alone", folder.name) for folder in found.left_alone]
    rows += [("recreated empty" if recreate_missing else "files missing", str(name)) for name in found.missing]
    return rows
