"""A classic member learns of a rebalance at once, from the answer to a heartbeat that waits for it."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kio.schema.api_versions import v3 as versions
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat import v3 as heartbeat
from kio.schema.join_group import v3 as join
from kio.schema.sync_group import v3 as sync
from tests.clients.kafka.raw import RawKafka

from flymq.gateways.kafka import waiting_heartbeats

LONG = datetime.timedelta(seconds=60)


class Member(RawKafka):
    """A member of a group, by hand."""

    def __init__(self, port: int, group: str, software: str) -> None:
        super().__init__(port)
        self.group = group
        name, _, version = software.partition("/")
        hello = versions.request.ApiVersionsRequest(client_software_name=name, client_software_version=version)
        self.ask(hello, versions.response.ApiVersionsResponse)

    def send_join(self) -> None:
        protocol = join.request.JoinGroupRequestProtocol(name="range", metadata=b"")
        self.send(
            join.request.JoinGroupRequest(
                group_id=self.group,
                session_timeout=LONG,
                rebalance_timeout=LONG,
                member_id="",
                protocol_type="consumer",
                protocols=(protocol,),
            )
        )

    def join(self) -> None:
        self.send_join()
        joined = self.receive(join.response.JoinGroupResponse)
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignment = sync.request.SyncGroupRequestAssignment(member_id=self.member_id, assignment=b"all")
        request = sync.request.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            assignments=(assignment,),
        )
        assert self.ask(request, sync.response.SyncGroupResponse).error_code is ErrorCode.none

    def send_heartbeat(self) -> None:
        self.send(
            heartbeat.request.HeartbeatRequest(
                group_id=self.group, generation_id=self.generation, member_id=self.member_id, group_instance_id=None
            )
        )

    def receive_heartbeat(self) -> ErrorCode:
        code = self.receive(heartbeat.response.HeartbeatResponse).error_code
        assert isinstance(code, ErrorCode)
        return code

    def has_answer(self) -> bool:
        self.socket.settimeout(0.3)
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(20)


@contextmanager
def member(port: int, group: str, software: str = "librdkafka/2") -> Iterator[Member]:
    with Member(port, group, software) as joined:
        joined.join()
        yield joined


@pytest.fixture(autouse=True)
def long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_heartbeats, "WAIT_S_MAX", 600)  # a quarter of the session timeout, then


@pytest.mark.parametrize(
    "software", ["librdkafka/2.16.0", "confluent-kafka-python/2.16.0-rdkafka-2.16.0", "apache-kafka-java/4.3.1"]
)
def test_a_member_learns_at_once_that_another_one_joins(broker, topic, software):
    with member(broker.port, topic, software) as first, Member(broker.port, topic, "librdkafka/2") as second:
        first.send_heartbeat()
        assert not first.has_answer()
        second.send_join()
        assert first.receive_heartbeat() is ErrorCode.rebalance_in_progress


def test_another_request_is_not_kept_waiting(broker, topic):
    with member(broker.port, topic) as first:
        first.send_heartbeat()
        assert not first.has_answer()
        first.send_heartbeat()
        assert first.receive_heartbeat() is ErrorCode.none
        assert not first.has_answer(), "now the second one waits"


def test_a_client_that_may_do_nothing_meanwhile_is_answered_at_once(broker, topic):
    with member(broker.port, topic, "kafkajs/2.2.4") as first:
        first.send_heartbeat()
        assert first.receive_heartbeat() is ErrorCode.none


def test_a_wait_that_is_over_is_answered(broker, topic, monkeypatch):
    monkeypatch.setattr(waiting_heartbeats, "WAIT_S_MAX", 0.01)
    with member(broker.port, topic) as first:
        first.send_heartbeat()
        assert first.receive_heartbeat() is ErrorCode.none


def test_a_member_whose_connection_ends_leaves_nobody_listening(broker, topic):
    with member(broker.port, topic) as first:
        first.send_heartbeat()
        assert not first.has_answer()
    with Member(broker.port, topic, "librdkafka/2") as second:
        second.send_join()
        assert not second.has_answer(), "the first one is a member until its session ends"
