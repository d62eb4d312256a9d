"""Rounds of a campaign from the command line: a table of what happened, and how to repeat what failed.

python -m tests.campaigns.crash --rounds 20 --seed 7
python -m tests.campaigns.crash --minutes 30
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

COLUMN = 14


@dataclass
class Report:
    """What one round found."""

    violations: list[str] = field(default_factory=list)
    """Broken promises, in words; none if all is well."""
    figures: dict[str, object] = field(default_factory=dict)
    """For the table."""


Round = Callable[[int, Path, argparse.Namespace], Report]
"""One round: a seed, an empty folder to work in, and the options of the campaign."""


def options(name: str, about: str, *, rounds: int = 5) -> argparse.ArgumentParser:
    """Return the options that all campaigns have; a campaign adds its own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.campaigns.{name}",
        description=about.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="number of rounds")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="seed of the first round; the next has +1")
    parser.add_argument("--minutes", type=float, default=0, help="run for this long instead of a number of rounds")
    parser.add_argument("--folder", type=Path, default=None, help="where rounds keep their files; a temporary folder")
    return parser


def run(parser: argparse.ArgumentParser, run_round: Round, arguments: Sequence[str] | None = None) -> int:
    """Run the rounds, print a line of the table for each, and return the exit code."""
    given = parser.parse_args(arguments)
    folder: Path = given.folder or Path(tempfile.mkdtemp(prefix="flymq-campaign-"))
    folder.mkdir(parents=True, exist_ok=True)
    started, number, failed, has_header = time.monotonic(), 0, [], False
    while _goes_on(given, number, started):
        seed = given.seed + number
        report, seconds = _run_one(run_round, seed, folder / f"round-{seed}", given)
        cells = {"round": number + 1, "seed": seed, "seconds": f"{seconds:.1f}", **report.figures}
        if not has_header:
            print(_row([*cells, "verdict"]))
            has_header = True
        print(_row([*cells.values(), "FAILED" if report.violations else "ok"]), flush=True)
        if report.violations:
            failed.append(seed)
            _explain(parser, given, seed, folder / f"round-{seed}", report)
        number += 1
    print(f"\n{number} rounds, {len(failed)} failed")
    if not failed and given.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _goes_on(given: argparse.Namespace, number: int, started: float) -> bool:
    if given.minutes:
        return time.monotonic() - started < given.minutes * 60
    return bool(number < given.rounds)


def _run_one(run_round: Round, seed: int, folder: Path, given: argparse.Namespace) -> tuple[Report, float]:
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier run in the same place
    folder.mkdir(parents=True)
    started = time.monotonic()
    try:
        report = run_round(seed, folder, given)
    except Exception as error:  # a round that cannot be run to its end is no proof of anything
        report = Report([f"the round did not come to its end: {error!r}"])
    if not report.violations:
        shutil.rmtree(folder, ignore_errors=True)
    return report, time.monotonic() - started


def _explain(
    parser: argparse.ArgumentParser, given: argparse.Namespace, seed: int, folder: Path, report: Report
) -> None:
    own = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in vars(given).items()
        if name not in ("rounds", "seed", "minutes", "folder") and value not in (None, parser.get_default(name))
    ]
    shown = report.violations[:10]
    print("".join(f"    {violation}\n" for violation in shown), end="")
    if len(report.violations) > len(shown):
        print(f"    … and {len(report.violations) - len(shown)} more")
    print(f"    data and logs: {folder}")
    print(f"    repeat with:   {' '.join([parser.prog, '--rounds 1', f'--seed {seed}', *own])}", flush=True)


def _row(cells: Sequence[object]) -> str:
    return "  ".join(str(cell).ljust(COLUMN if at > 1 else 6) for at, cell in enumerate(cells)).rstrip()
