"""Print how much of each room of the source the tests ran, from the JSON report of coverage.py.

python tools/coverage_rooms.py build/coverage/report.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

PARTS = ("num_statements", "num_branches", "covered_lines", "covered_branches")


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_text())
    rooms: dict[str, Counter[str]] = {}
    for file, found in report["files"].items():
        rooms.setdefault(room_of(file), Counter()).update({part: found["summary"][part] for part in PARTS})
    print(f"{'room':<16}{'statements':>12}{'branches':>10}{'covered':>10}")
    for room, counts in sorted(rooms.items()):
        print_row(room, counts)
    print_row("total", sum(rooms.values(), Counter()))


def room_of(file: str) -> str:
    """Return the folder under `src/flymq`; a file that lies in none counts to the package itself."""
    parts = Path(file).parts
    below = parts[parts.index("src") + 1 :]
    return below[1] if len(below) > 2 else below[0]


def print_row(name: str, counts: Counter[str]) -> None:
    of = counts["num_statements"] + counts["num_branches"]
    covered = (counts["covered_lines"] + counts["covered_branches"]) / max(of, 1)
    print(f"{name:<16}{counts['num_statements']:>12,}{counts['num_branches']:>10,}{covered:>10.1%}")


main()
