"""Write docs/reference/kafka-admin.md from the tables of outcomes in tests/clients/jvm/outcomes.

    python tools/kafka_outcomes_page.py            write the page
    python tools/kafka_outcomes_page.py --check    exit 1 unless the page is what the tables say

The tables are what the tests in tests/clients/jvm compare each run with. Run it from the root of the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path("docs/reference/kafka-admin.md")
TABLES = {
    "tools": ("Command-line tools of Kafka 4.3", "Command"),
    "admin-kafka4": ("Admin of Java's client 4.3", "Method"),
    "admin-kafka3": ("Admin of Java's client 3.9", "Method"),
}
_INTRODUCTION = """\
# Kafka's administration on FlyMQ

<!-- Written by `python tools/kafka_outcomes_page.py` from tests/clients/jvm/outcomes. -->

Each command of Kafka's command-line tools, and each method of the Java client's `Admin`, as it ends on FlyMQ and on
Apache Kafka 4.3.1 with its default settings. Tests repeat every line of the column FlyMQ in every run; with
`FLYMQ_TEST_KAFKA=1` those of the column Kafka too.

- *works*: it does what it says; after the colon a few words of the answer. *same*: as on Kafka.
- `UnsupportedVersionException`: FlyMQ does not serve the API, and says so at once.
- Any other name is the error with which the call ended.

Commands are shown without `--bootstrap-server`; *topic*, *id* and *folder* stand for names.
"""


def render() -> str:
    sys.path.insert(0, ".")
    return "\n".join([_INTRODUCTION, *_tables()])


def _tables() -> Iterator[str]:
    from tests.clients.jvm.outcomes import load

    for name, (title, what) in TABLES.items():
        rows = load(name)
        same = sum(row["flymq"] == row["kafka"] for row in rows.values())
        yield f"## {title}\n\n{same} of {len(rows)} end as on Kafka.\n"
        yield f"| {what} | FlyMQ | Kafka |\n|---|---|---|"
        for label, row in rows.items():
            ours = "same" if row["flymq"] == row["kafka"] else _cell(row["flymq"])
            yield f"| `{label}` | {ours} | {_cell(row['kafka'])} |"
        yield ""


def _cell(outcome: str) -> str:
    if outcome == "exit 0":
        return "shows less"
    return outcome if outcome.startswith("works") or " " in outcome else f"`{outcome}`"


def main(arguments: list[str]) -> int:
    page = render()
    if "--check" in arguments:
        if PAGE.exists() and PAGE.read_text() == page:
            return 0
        print(f"{PAGE} is not what the tables say. Try: python tools/kafka_outcomes_page.py", file=sys.stderr)
        return 1
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
