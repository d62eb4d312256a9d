"""Write and read with `flymq produce` and `flymq consume`."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path

import pytest
from tests.clients.cli.conftest import Flymq, StartFlymq

from flymq.client.sync.client import FlyMQClient
from flymq.testing import TestBroker


def test_values_go_in_and_come_out(flymq: Flymq) -> None:
    written = flymq("produce", "greetings", "hello", "world")
    assert (written.code, written.out, written.err) == (0, b"", "Produced 2 messages to greetings.\n")
    assert flymq("consume", "greetings").out == b"hello\nworld\n"


def test_without_values_every_line_of_stdin_is_a_message(flymq: Flymq) -> None:
    flymq("produce", "lines", stdin=b"one\n\n\xff\xfe\nlast without an end")
    assert flymq("consume", "lines").out == b"one\n\n\xff\xfe\nlast without an end\n"


def test_messages_are_printed_by_time_over_all_partitions(flymq: Flymq, broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client:
        client.create_topic("merged", partitions=3)
        for number in range(300):
            client.default_producer().send("merged", str(number), partition=number * 7 % 3, timestamp=1000 + number)
    assert flymq("consume", "merged").lines == [str(number) for number in range(300)]
    assert flymq("consume", "merged", "-n", "2").lines == ["0", "1"]
    of_two = flymq("consume", "merged", "-p", "1", "-p", "2", "--show", "partition").lines
    assert {line.split("\t")[0] for line in of_two} == {"1", "2"}
    assert len(of_two) == 200


def test_keys_and_headers_are_written_and_shown(flymq: Flymq) -> None:
    flymq("produce", "keyed", "-K", ":", "-H", "trace=7f", "alice:hi", "bob:a:b")
    flymq("produce", "keyed", "-k", "carol", "-p", "2", "hey")
    shown = flymq("consume", "keyed", "--show", "key,headers").lines
    assert sorted(shown) == ["alice\ttrace=7f\thi", "bob\ttrace=7f\ta:b", "carol\t\they"]
    assert flymq("consume", "keyed", "-p", "2", "--show", "partition,offset,key").lines[-1].startswith("2\t")
    assert all(len(line.split("\t")) == 6 for line in flymq("consume", "keyed", "-v").lines)


def test_a_topic_is_copied_as_json_with_keys_headers_and_times(flymq: Flymq) -> None:
    flymq("produce", "original", "-k", "a", "-H", "n=1", "x", stdin=b"")
    flymq("produce", "original", "-p", "0", stdin=b"\x00\xff\n")
    printed = flymq("consume", "original", "-o", "json").out
    copied = flymq("produce", "copy", "--json", stdin=printed)
    assert copied.code == 0, copied.err

    def contents(line: str) -> dict[str, object]:
        return {name: value for name, value in json.loads(line).items() if name not in ("topic", "partition", "offset")}

    again = [contents(line) for line in flymq("consume", "copy", "-o", "json").lines]
    assert again == [contents(line) for line in printed.decode().splitlines()]
    assert {"base64": "AP8="} in [message["value"] for message in again]


def test_a_null_value_is_written_from_json_and_shown_as_null(flymq: Flymq) -> None:
    flymq("produce", "tombs", "--json", '{"key": "gone", "value": null}')
    assert flymq("consume", "tombs", "--show", "key").out == b"gone\tnull\n"


def test_a_file_is_one_message_and_comes_back_byte_for_byte(flymq: Flymq, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10 + b"\n\n"
    (tmp_path / "photo").write_bytes(content)
    flymq("produce", "files", "-f", str(tmp_path / "photo"))
    assert flymq("consume", "files", "-o", "raw", "-n", "1").out == content


def test_places_are_printed_as_json_when_asked_for(flymq: Flymq) -> None:
    places = [json.loads(line) for line in flymq("produce", "places", "-p", "1", "a", "b", "-o", "json").lines]
    assert places == [{"topic": "places", "partition": 1, "offset": offset} for offset in (0, 1)]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read_again(flymq: Flymq, compression: str) -> None:
    flymq("produce", f"packed-{compression}", "-z", compression, "--acks", "all", stdin=b"same\n" * 1000)
    assert flymq("consume", f"packed-{compression}").out == b"same\n" * 1000


def test_reading_begins_where_it_is_told(flymq: Flymq, broker: TestBroker) -> None:
    with FlyMQClient(broker.address) as client:
        client.create_topic("from", partitions=1)
        for number in range(10):
            client.produce("from", str(number), timestamp=1_767_225_600_000 + number * 1000)
    everything = [str(number) for number in range(10)]
    for start, expected in {
        "earliest": everything,
        "latest": [],
        "7": everything[7:],
        "99": [],
        "-3": everything[-3:],
        "-99": everything,
        "2026-01-01T00:00:04Z": everything[4:],
        "2026-01-01T00:01:00Z": [],
        "10m": [],
    }.items():
        assert flymq("consume", "from", "--from", start).lines == expected, start


def test_a_group_goes_on_where_it_stopped(flymq: Flymq) -> None:
    flymq("topic", "create", "shared", "-p", "2")
    flymq("produce", "shared", stdin=b"1\n2\n3\n4\n5\n")
    assert flymq("consume", "shared", "--group", "readers", "-n", "3").lines == ["1", "2", "3"]
    assert flymq("consume", "shared", "--group", "readers").lines == ["4", "5"]
    assert flymq("consume", "shared", "--group", "readers").lines == []
    assert flymq("consume", "shared", "--group", "late", "--from", "latest").lines == []
    assert flymq("consume", "shared", "--group", "readers", "--from", "3").code == 2


def test_encrypted_values_need_the_key(flymq: Flymq, tmp_path: Path) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(base64.b64encode(name.encode().ljust(32, b".")).decode() + "\n")
    flymq("produce", "secret", "psst", "--encryption-key-file", str(tmp_path / "right"))
    assert b"psst" not in flymq("consume", "secret").out
    assert flymq("consume", "secret", "--encryption-key-file", str(tmp_path / "right")).out == b"psst\n"
    assert flymq("consume", "secret", "--encryption-key-file", str(tmp_path / "wrong")).code == 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (["-K", ":"], b"a:1\nb\n", "Message 2 is invalid: it does not contain ':'"),
        (["--json"], b'{"value": 1}\n{}\n', "Message 2 is invalid: the field `value` is missing"),
        (["--json", "-k", "a"], b"", "With --json, keys and headers are part of the message"),
        (["-H", "trace"], b"", "'trace' is not NAME=VALUE"),
        (["--acks", "some"], b"", "'some' is not one of"),
    ],
)
def test_input_that_cannot_be_read_is_wrong_usage(
    flymq: Flymq, arguments: list[str], stdin: bytes, problem: str
) -> None:
    refused = flymq("produce", "refused", *arguments, stdin=stdin)
    assert (refused.code, problem in refused.err) == (2, True), refused.err


def test_a_message_the_topic_does_not_take_fails_and_says_how_many_went_before(flymq: Flymq) -> None:
    flymq("topic", "create", "small", "-p", "1", "--set", "max.message.bytes=1KiB")
    refused = flymq("produce", "small", "-o", "json", stdin=b"fits\n" + b"x" * 5000 + b"\n")
    assert refused.code == 1
    assert "Try: Send a smaller message" in refused.err


@pytest.mark.parametrize("arguments", [["no-such-topic"], ["known", "-p", "9"]])
def test_what_is_not_there_cannot_be_read(flymq: Flymq, arguments: list[str]) -> None:
    flymq("produce", "known", "x")
    missing = flymq("consume", *arguments)
    assert (missing.code, len(missing.err.splitlines())) == (1, 2)
    assert "no-such-topic" not in flymq("topic", "list").out.decode()


def test_following_prints_what_comes_until_ctrl_c(broker: TestBroker, start_flymq: StartFlymq) -> None:
    with FlyMQClient(broker.address) as client:
        client.produce("live", "before")
        follower = start_flymq("consume", "live", "--follow", "--server", broker.address)
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"before\n"
        client.produce("live", "after")
        assert follower.stdout.readline() == b"after\n"
    follower.send_signal(signal.SIGINT)
    assert follower.communicate() == (b"", b"")
    assert follower.returncode == 130


def test_following_waits_for_a_topic_that_nobody_has_written_to(broker: TestBroker, start_flymq: StartFlymq) -> None:
    follower = start_flymq("consume", "not-yet", "-f", "-n", "1", "--server", broker.address)
    with FlyMQClient(broker.address) as client:
        client.produce("not-yet", "first")
    assert follower.communicate(timeout=30) == (b"first\n", b"")
    assert follower.returncode == 0


def test_a_reader_that_leaves_early_is_no_failure(broker: TestBroker, start_flymq: StartFlymq) -> None:
    with FlyMQClient(broker.address) as client:
        client.produce_batch("much", [b"x" * 100] * 20_000)
    reader = start_flymq("consume", "much", "--server", broker.address)
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()
    assert reader.wait(30) == 0
    assert reader.stderr.read() == b""
