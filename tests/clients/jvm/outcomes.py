"""What every method or command ends with, on FlyMQ and on Apache Kafka: tables in the folder `outcomes`.

A run is compared with the table of its name. When the product has changed for good, write the tables anew, and the page
that is made of them:

    FLYMQ_UPDATE_OUTCOMES=1 FLYMQ_TEST_KAFKA=1 pytest tests/clients/jvm
    python tools/kafka_outcomes_page.py
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "outcomes"
_COLUMNS = ("what", "flymq", "kafka")


def load(name: str) -> dict[str, dict[str, str]]:
    """Return the rows of a table: what was called → server → outcome."""
    path = FOLDER / f"{name}.tsv"
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row.pop("what"): row for row in csv.DictReader(file, delimiter="\t")}


def compare(name: str, server: str, told: Mapping[str, str]) -> None:
    """Fail with the rows in which a run differs from the table."""
    if os.environ.get("FLYMQ_UPDATE_OUTCOMES"):
        _update(name, server, told)
    known = {what: row[server] for what, row in load(name).items()}
    changed = {what for what in {**known, **told} if known.get(what) != told.get(what)}
    lines = [f"{what}: {known.get(what)} in the table, now {told.get(what)}" for what in sorted(changed)]
    assert not lines, "\n".join([f"outcomes/{name}.tsv, on {server}:", *lines, "How to update it: outcomes.py"])


def _update(name: str, server: str, told: Mapping[str, str]) -> None:
    rows = load(name)
    with (FOLDER / f"{name}.tsv").open("w", newline="") as file:
        table = csv.DictWriter(file, _COLUMNS, delimiter="\t", lineterminator="\n", restval="")
        table.writeheader()
        for what, outcome in told.items():
            table.writerow({"what": what, **rows.get(what, {}), server: outcome})
