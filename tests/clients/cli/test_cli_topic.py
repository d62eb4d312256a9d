import json

from tests.clients.cli.conftest import Flymq


def test_a_topic_is_created_listed_described_altered_and_deleted(flymq: Flymq) -> None:
    assert flymq("topic", "create", "life", "-p", "2", "--set", "retention.ms=12h").code == 0
    assert ["life", "2", "1"] in [line.split() for line in flymq("topic", "list").lines]

    described = json.loads(flymq("topic", "describe", "life", "-o", "json").out)
    assert [part["partition"] for part in described["partitions"]] == [0, 1]
    assert described["settings"]["retention.ms"] == 43_200_000
    assert described["overrides"] == ["retention.ms"]

    altered = flymq("topic", "alter", "life", "--set", "retention.bytes=2GiB", "--unset", "retention.ms", "-o", "json")
    assert json.loads(altered.out) == {"retention.bytes": 2 << 30, "retention.ms": -1}

    assert flymq("topic", "add-partitions", "life", "--total", "5").code == 0
    assert ["life", "5", "1"] in [line.split() for line in flymq("topic", "list").lines]

    assert flymq("topic", "delete", "life", "--yes").code == 0
    assert flymq("topic", "describe", "life").code == 1


def test_a_topic_compresses_as_it_is_told(flymq: Flymq) -> None:
    assert flymq("topic", "create", "packed", "--set", "compression.type=zstd", "--set", "preallocate=true").code == 0
    described = json.loads(flymq("topic", "describe", "packed", "-o", "json").out)
    assert described["settings"]["compression.type"] == "zstd"
    assert described["settings"]["preallocate"] == "true"
    refused = flymq("topic", "alter", "packed", "--set", "compression.type=rar")
    assert refused.code == 2 and "compression.type" in refused.err


def test_the_description_for_people_names_what_was_set(flymq: Flymq) -> None:
    flymq("topic", "create", "described", "-p", "1", "--set", "segment.bytes=1MiB")
    lines = flymq("topic", "describe", "described").lines
    assert "PARTITION   LEADER   REPLICAS   IN SYNC   START   END   SIZE" in lines
    assert [line.split() for line in lines if "(topic override)" in line] == [
        ["segment.bytes", "1048576", "1.0", "MiB", "(topic", "override)"]
    ]


def test_json_on_stdout_is_all_there_is_on_stdout(flymq: Flymq) -> None:
    made = flymq("-o", "json", "topic", "create", "as-json", "-p", "3")
    assert json.loads(made.out) == {"name": "as-json", "partitions": 3, "replication_factor": 1, "internal": False}
    assert made.err == ""


def test_a_topic_that_exists_is_left_alone_only_when_told_so(flymq: Flymq) -> None:
    flymq("topic", "create", "twice", "-p", "1")
    again = flymq("topic", "create", "twice", "-p", "2")
    assert (again.code, again.err.splitlines()[0]) == (1, "flymq: the topic 'twice' exists already")
    assert again.err.splitlines()[1].startswith("Try: ")
    assert flymq("topic", "create", "twice", "-p", "2", "--if-not-exists").code == 0
    assert ["twice", "1", "1"] in [line.split() for line in flymq("topic", "list").lines]


def test_deleting_asks_first_and_without_anybody_to_ask_does_nothing(flymq: Flymq) -> None:
    flymq("topic", "create", "precious")
    assert flymq("topic", "delete", "precious").code == 2
    assert flymq("topic", "describe", "precious").code == 0


def test_deleting_what_is_not_there_fails_unless_that_is_fine(flymq: Flymq) -> None:
    assert flymq("topic", "delete", "never", "--yes").code == 1
    assert flymq("topic", "delete", "never", "--yes", "--if-exists").code == 0


def test_a_wrong_setting_is_wrong_usage_and_is_named(flymq: Flymq) -> None:
    refused = flymq("topic", "create", "wrong", "--set", "retention.ms=soon")
    assert (refused.code, "retention.ms" in refused.err) == (2, True)
    assert flymq("topic", "create", "wrong", "--set", "retention").code == 2
    assert flymq("topic", "alter", "wrong").code == 2
