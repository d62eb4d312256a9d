"""`flymq repair`: put a data directory in order while its broker is stopped."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from flymq.cli.options import Noun, wants_json
from flymq.cli.output import counted, note, show
from flymq.host.host import system_host
from flymq.server.repair import repair_internal_topics


@click.group(cls=Noun)
def repair() -> None:
    """Repair a data directory whose broker is stopped."""


@repair.command("internal-topics")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("flymq-data"),
    help="Data directory.  [default: flymq-data]",
)
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
