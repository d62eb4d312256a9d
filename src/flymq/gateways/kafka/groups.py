"""Classic groups: join, sync, heartbeat, leave."""

from __future__ import annotations

from flymq.broker.service.groups import Committer, Join, Joined
from flymq.gateways.connection import AnswerLater
from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode, code_of
from flymq.gateways.kafka.waiting_heartbeats import WaitingHeartbeat, may_wait
from flymq.model.errors import CoordinatorLoading, FlyMQError, MemberIdRequired, NotCoordinator
from flymq.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from flymq.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from flymq.wire.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from flymq.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_IDS_ARE_TOLD_FIRST_FROM = 4
_MANY_LEAVE_FROM = 3


def join_group(connection: KafkaConnection, request: JoinGroupRequest, version: int) -> JoinGroupResponse | AnswerLater:
    if not request.group_id:
        return JoinGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID, member_id=request.member_id)
    join = Join(
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        request.member_id,
        request.group_instance_id or "",
        connection.caller.client_id,
        connection.caller.address,
        request.session_timeout_ms,
        request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms,
        kind=request.protocol_type,
    )
    needs_id = version >= _MEMBER_IDS_ARE_TOLD_FIRST_FROM
    try:
        joined = connection.service.groups.join(connection.caller, request.group_id, join, needs_id=needs_id)
    except MemberIdRequired as error:
        return JoinGroupResponse(error_code=code_of(error), member_id=error.member_id)
    except FlyMQError as error:
        return JoinGroupResponse(error_code=code_of(error), member_id=request.member_id)
    return AnswerLater(joined, _joined)


def _joined(joined: Joined) -> JoinGroupResponse:
    members = [
        JoinGroupResponseMember(member.member_id, member.instance or None, member.metadata(joined.protocol))
        for member in joined.members
    ]
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.kind,
        protocol_name=joined.protocol,
        leader=joined.leader,
        member_id=joined.member_id,
        members=members,
    )


def sync_group(connection: KafkaConnection, request: SyncGroupRequest, _version: int) -> AnswerLater:
    groups = connection.service.groups
    member = Committer(request.member_id, request.generation_id, request.group_instance_id or "")
    assignments = {each.member_id: each.assignment for each in request.assignments}
    assigned = groups.sync(connection.caller, request.group_id, member, assignments)
    kind, protocol = groups.protocol_of(connection.caller, request.group_id, request.member_id)
    return AnswerLater(assigned, lambda assignment: _synced(request, kind, protocol, assignment))


def _synced(request: SyncGroupRequest, kind: str, protocol: str, assignment: bytes) -> SyncGroupResponse:
    for asked, actual in ((request.protocol_type, kind), (request.protocol_name, protocol)):
        if asked is not None and asked != actual:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return SyncGroupResponse(protocol_type=kind, protocol_name=protocol, assignment=assignment)


def heartbeat(connection: KafkaConnection, request: HeartbeatRequest, _version: int) -> HeartbeatResponse | AnswerLater:
    member = Committer(request.member_id, request.generation_id, request.group_instance_id or "")
    groups, caller, group = connection.service.groups, connection.caller, request.group_id
    groups.heartbeat(caller, group, member)
    if not may_wait(connection):
        return HeartbeatResponse()

    def answer(has_changed: bool) -> HeartbeatResponse:
        try:
            if has_changed:
                groups.heartbeat(caller, group, member)
        except FlyMQError as error:
            return HeartbeatResponse(error_code=code_of(error))
        return HeartbeatResponse()

    return AnswerLater(WaitingHeartbeat(connection, group, request.member_id), answer)


def leave_group(connection: KafkaConnection, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    if version < _MANY_LEAVE_FROM:
        connection.service.groups.leave(connection.caller, request.group_id, request.member_id)
        return LeaveGroupResponse()
    return LeaveGroupResponse(members=[_leave(connection, request.group_id, member) for member in request.members])


def _leave(connection: KafkaConnection, group: str, member: MemberIdentity) -> MemberResponse:
    code = ErrorCode.NONE
    try:
        instance = member.group_instance_id or ""
        connection.service.groups.leave(connection.caller, group, member.member_id, instance=instance)
    except (NotCoordinator, CoordinatorLoading):
        raise  # not an error of this member: the client looks for the coordinator
    except FlyMQError as error:
        code = code_of(error)
    return MemberResponse(member.member_id, member.group_instance_id, code)
