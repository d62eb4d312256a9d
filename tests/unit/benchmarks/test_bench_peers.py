"""What the drivers of the peers make of the bytes they get, and what happens when a peer is not there."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peers import __main__ as peers_program
from benchmarks.peers import suite
from benchmarks.peers.amqp import Confirmations, Deliveries
from benchmarks.peers.cache import VARIABLE, cache
from benchmarks.peers.contender import free_port, process
from benchmarks.peers.redis import Entries

from benchmarks import kafka_requests


def test_the_answer_of_a_read_from_redis_is_counted_when_it_is_whole():
    entry = b"*2\r\n$3\r\n%s\r\n*2\r\n$1\r\nv\r\n$2\r\nxx\r\n"
    answer = b"*1\r\n*2\r\n$1\r\nk\r\n*2\r\n" + entry % b"7-0" + entry % b"8-1" + b"$3\r\nEND\r\n"
    entries = Entries()
    assert entries.feed(memoryview(answer[:40])) is None
    assert entries.feed(memoryview(answer[40:])) == 2
    assert entries.last_id == b"8-1"


def test_a_read_from_redis_that_found_nothing_keeps_its_place():
    entries = Entries()
    assert entries.feed(memoryview(b"*-1\r\n$3\r\nEND\r\n")) == 0
    assert entries.last_id == b"0-0"


def amqp_ack(tag: int, multiple: bool) -> bytes:
    body = b"\x00\x3c\x00\x50" + tag.to_bytes(8, "big") + bytes([multiple])
    return b"\x01\x00\x01" + len(body).to_bytes(4, "big") + body + b"\xce"


def test_confirms_count_all_messages_up_to_the_one_they_name():
    confirmations = Confirmations()
    data = amqp_ack(1, False) + amqp_ack(40, True)
    assert confirmations.feed(memoryview(data[:30])) == 1
    assert confirmations.feed(memoryview(data[30:])) == 39


def test_a_stream_of_rabbitmq_is_acknowledged_now_and_then():
    acknowledged: list[int] = []
    deliveries = Deliveries(acknowledged.append)
    for _ in range(1200):
        assert deliveries.feed(memoryview(b"..\x00\x3c\x00\x3c..")) == 1
    assert acknowledged == [501, 1002]


def test_the_size_of_a_fetch_response_tells_how_many_bytes_of_batches_are_in_it():
    assert kafka_requests.fetched_bytes("bench", 48 + 5 + 1000) == 1000
    assert kafka_requests.fetched_bytes("bench", 20) == 0


class AbsentDriver:
    name = "SomeMQ"

    def missing(self) -> str | None:
        return "it is nowhere"

    def install(self) -> None:
        raise RuntimeError("no network")

    def version(self) -> str:
        raise NotImplementedError

    @contextmanager
    def running(self, promise, folder):
        raise NotImplementedError
        yield []


def test_an_absent_peer_is_left_out_with_a_line_that_says_why(capsys):
    assert suite.run(quick=True, drivers=[AbsentDriver()]) == []
    assert "SomeMQ is left out: it is nowhere" in capsys.readouterr().err


def test_a_peer_that_cannot_be_fetched_is_named_and_the_others_are_tried(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(peers_program, "WANTED", [AbsentDriver(), AbsentDriver()])
    assert peers_program.main(["install"]) == 1
    told = capsys.readouterr()
    assert told.out.count("Fetching SomeMQ") == 2
    assert "SomeMQ cannot be fetched here, and will be left out: no network" in told.err


def test_the_list_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(peers_program, "WANTED", [AbsentDriver()])
    assert peers_program.main(["list"]) == 0
    assert "left out: it is nowhere" in capsys.readouterr().out
    assert cache() == tmp_path


def test_a_server_that_does_not_start_is_told_in_its_own_words(tmp_path: Path):
    command = ["sh", "-c", "echo the disk is gone; exit 3"]
    with pytest.raises(RuntimeError, match="the disk is gone"), process(command, free_port(), tmp_path):
        pass
