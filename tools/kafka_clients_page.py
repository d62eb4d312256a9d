"""Write docs/reference/kafka-clients.md from a run of the tests with real clients, and check that it still fits them.

    python tools/kafka_clients_page.py            run the tests in TESTS and write the page
    python tools/kafka_clients_page.py --check    exit 1 unless every cell of the page is a test there, and the reverse

A cell is written only by a test that has passed in this run; with one that fails nothing is written. Run it from the
root of the repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

PAGE = Path("docs/reference/kafka-clients.md")
TESTS = ("tests/clients/kafka", "tests/clients/jvm", "tests/clients/go")
FEATURES = (
    "codecs",
    "keys, headers, nulls and times",
    "large messages",
    "idempotent producer",
    "transactions: commit and abort",
    "transactions: go on after the broker has aborted one",
    "transactions: go on after the broker was killed",
    "exactly once though broker and client are killed",
    "exactly once though the client is killed",
    "groups: go on where they committed",
    "groups: members join and leave",
    "groups: group.protocol=consumer",
    "Kafka Streams: group.protocol=streams",
    "admin",
    "consume, transform, produce",
    "copy topics and offsets between brokers",
)
CLIENTS = {  # name in the tests → the package whose version is told
    "Java": "",
    "Kafka Streams": "",
    "Kafka Connect": "",
    "MirrorMaker 2": "",
    "Spring": "",
    "franz-go": "",
    "sarama": "",
    "kafka-go": "",
    "librdkafka": "confluent-kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka-python",
    "KafkaJS": "",
    "kcat": "",
    "faststream (aiokafka)": "faststream",
    "faststream (confluent-kafka)": "faststream",
    "quixstreams": "quixstreams",
    "taskiq": "taskiq-aio-kafka",
}

_INTRODUCTION = """\
# Kafka's clients that work with FlyMQ

<!-- Written by `python tools/kafka_clients_page.py` from a run of the tests it names. -->

Each number is how many tests with the real client, unmodified, have passed for this page; an empty cell is a feature
that the client does not have, or that nobody has tried. The tests are in `tests/clients/kafka`, `jvm` and `go`. How to
set a client up is in [Use Kafka's clients](../how-to/kafka-clients.md), what is served in
[What is served of Kafka's protocol](../formats/kafka-protocol.md).
"""

_NOTES = """\
## Good to know

- librdkafka is tested through confluent-kafka for Python; clients for Go, .NET, C++ and Rust wrap the same library.
- Every method of Java's Admin and every command-line tool of Kafka: [Kafka's administration on FlyMQ](kafka-admin.md).
- Transactions of Java from 4.0 on have an epoch each (KIP-890). A commit after the broker has aborted a transaction is
  an error after which librdkafka and Java abort and go on; aiokafka and kafka-python need a new producer then.
- The codecs are none, gzip, snappy, lz4 and zstd. KafkaJS has none and gzip of its own; for the others its users add
  packages.
- A running group can be moved from the classic protocol to `group.protocol=consumer` and back, member by member.
- faststream, quixstreams and taskiq are used as their tutorials use them. taskiq-aio-kafka needs the partitioner and
  the assignor of aiokafka to be named when kafka-python 3 is installed.
"""


class Cell(NamedTuple):
    client: str
    feature: str
    test: str
    outcome: str


def collect_cells(*flags: str, is_quiet: bool = False) -> list[Cell]:
    """Let pytest collect or run the tests; return what they show."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch, "cells.json")
        environment = {**os.environ, "FLYMQ_KAFKA_CLIENTS": str(target)}
        command = [sys.executable, "-m", "pytest", "-q", *flags, *TESTS]
        output = subprocess.DEVNULL if is_quiet else None
        done = subprocess.run(command, env=environment, stdout=output, check=False)
        if done.returncode != 0:
            raise SystemExit("The tests failed: the page stays as it is.")
        return [Cell(**cell) for cell in json.loads(target.read_text())]


def render(cells: list[Cell]) -> str:
    passed = [cell for cell in cells if cell.outcome == "passed"]
    clients = [name for name in CLIENTS if any(cell.client == name for cell in passed)]
    return "\n".join(
        [_INTRODUCTION, *_table(clients, passed), "", *_versions(clients), "", _NOTES, *_tests(passed), ""]
    )


def _table(clients: list[str], passed: list[Cell]) -> Iterator[str]:
    yield f"| | {' | '.join(clients)} |"
    yield f"|---|{'---|' * len(clients)}"
    for feature in FEATURES:
        counts = [sum(cell.client == client and cell.feature == feature for cell in passed) for client in clients]
        yield f"| {feature} | {' | '.join(str(count or '') for count in counts)} |"


def _versions(clients: list[str]) -> Iterator[str]:
    yield "## Versions\n"
    yield "| Client | Version of the run |"
    yield "|---|---|"
    for client in clients:
        yield f"| {client} | {_version(client)} |"


def _version(client: str) -> str:
    if client == "librdkafka":
        import confluent_kafka

        return f"{confluent_kafka.libversion()[0]}, in confluent-kafka {version('confluent-kafka')}"
    if client == "kcat":
        command = [shutil.which("kcat") or "kafkacat", "-V"]
        found = re.search(r"Version (\S+).*librdkafka (\S+)", subprocess.check_output(command, text=True))
        return f"{found[1]}, with librdkafka {found[2]}" if found else "unknown"
    if client in ("Java", "Kafka Streams", "Kafka Connect", "MirrorMaker 2", "Spring"):
        return _version_of_jars(client)
    if client in ("franz-go", "sarama", "kafka-go"):
        modules = Path("tests/clients/go/clients/go.mod").read_text()
        found = re.search(rf"/{client} v(\S+)", modules)
        return found[1] if found else "unknown"
    if client == "KafkaJS":
        from tests.clients.kafka.kafkajs import find_modules

        package = Path(find_modules() or "", "kafkajs", "package.json")
        return str(json.loads(package.read_text())["version"])
    return version(CLIENTS[client])


def _version_of_jars(client: str) -> str:
    from tests.clients.jvm.maven import KAFKA, KAFKA_BEFORE, SPRING_BOOT

    own = {"Java": f"kafka-clients {KAFKA} and {KAFKA_BEFORE}", "Spring": f"Spring Boot {SPRING_BOOT}"}
    return own.get(client, KAFKA)


def _tests(passed: list[Cell]) -> Iterator[str]:
    yield "## The tests behind each feature\n"
    for feature in FEATURES:
        yield f"- {feature}"
        names = {_name(cell) for cell in passed if cell.feature == feature}
        yield from (f"  - `{name}`" for name in sorted(names))


def _name(cell: Cell) -> str:
    return cell.test.partition("[")[0].removeprefix("tests/clients/").removeprefix("kafka/")


def check() -> int:
    """The page names every test that has a cell, and no other."""
    cells = collect_cells("--collect-only", "-n0", is_quiet=True)
    collected = {_name(cell) for cell in cells}
    named = set(re.findall(r"^  - `(.+)`$", PAGE.read_text(), re.MULTILINE))
    for test in sorted(named - collected):
        print(f"{PAGE} names {test}, which is not there", file=sys.stderr)
    for test in sorted(collected - named):
        print(f"{PAGE} does not know {test}", file=sys.stderr)
    if named != collected:
        print("Try: python tools/kafka_clients_page.py", file=sys.stderr)
    return int(named != collected)


def main(arguments: list[str]) -> int:
    sys.path.insert(0, ".")
    if "--check" in arguments:
        return check()
    cells = collect_cells("-n", "2")
    unknown = {cell.client for cell in cells} - set(CLIENTS) | {cell.feature for cell in cells} - set(FEATURES)
    if unknown:
        raise SystemExit(f"The page has no place for {sorted(unknown)}.")
    for cell in cells:
        if cell.outcome != "passed":
            print(f"{cell.outcome}: {cell.client}, {cell.feature}: {cell.test}", file=sys.stderr)
    PAGE.write_text(render(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
