"""Members of consumer groups that poll over HTTP: create one, poll, commit, delete it.

The member itself runs in the broker (broker/service/members.py): it keeps the position between two polls and rejoins
when the group rebalances. Every request of the client is its heartbeat.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from starlette.responses import Response

from flymq.broker.safety import wait_safe
from flymq.broker.service.groups import NewOffset
from flymq.broker.service.members import Member, NewMember
from flymq.gateways.rest.handlers.groups import to_names
from flymq.gateways.rest.handlers.read import ISOLATIONS, POSITIONS, show_part, wait_out
from flymq.gateways.rest.http.bodies import JSON
from flymq.gateways.rest.http.problems import to_problem
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.gateways.rest.schema.shapes import OffsetResult, RecordShape
from flymq.model.coordinators import CoordinatorKind
from flymq.model.errors import NotCoordinator
from flymq.model.names import TopicPartition

_POLL_BYTES = 1 << 20


async def create_consumer(call: Call) -> Response:
    """Create a consumer that polls over HTTP, as a member of a group."""
    body: shapes.NewConsumer = call.body
    for topic in body.topics:
        await call.service.topics.get_or_create(call.caller, topic)
    wanted = NewMember(
        call.path["group"], body.topics, body.session_timeout_ms, body.instance, POSITIONS[body.position]
    )
    try:
        member = await call.service.members.add(call.caller, wanted)
    except NotCoordinator as error:
        raise _elsewhere(call, wanted.group) from error
    path = f"/api/v1/groups/{quote(member.group, safe='')}/consumers/{quote(member.member_id, safe='')}"
    return Response(msgspec.json.encode(_describe(member)), 201, {"Location": path}, JSON)


def _elsewhere(call: Call, group: str) -> NotCoordinator:
    """Return an error that names the broker on which the consumers of this group run."""
    found = call.service.coordinators.find(call.caller, CoordinatorKind.GROUP, group, ("", 0))
    return NotCoordinator(
        f"the group {group!r} is coordinated by broker {found.broker_id} at {found.host}:{found.port}",
        hint="Send the requests of its consumers to that broker.",
    )


async def describe_consumer(call: Call) -> shapes.ConsumerDescription:
    """Describe a consumer and its assigned partitions."""
    return _describe(_find(call))


async def poll(call: Call) -> shapes.Polled:
    """Poll the next records. Commits nothing."""
    query: shapes.PollQuery = call.query
    member = _find(call)
    member.isolation = ISOLATIONS[query.isolation]
    wait_ms = min(query.wait_ms, call.service.records.wait_ms_max)
    taken = await member.poll(limit=query.limit, bytes_max=_POLL_BYTES, wait_ms=wait_ms)
    records: list[RecordShape] = []
    for part in taken.parts:
        shown = show_part(part, query)
        for record in shown:
            record.topic = part.name.topic
        records += shown
    await wait_out(taken)
    return shapes.Polled(records)


async def commit(call: Call) -> shapes.OffsetResults:
    """Commit the given offsets, or those of all polled records."""
    body: shapes.OffsetsToCommit = call.body
    member = _find(call)
    if body.offsets:
        offsets = {
            TopicPartition(each.topic, each.partition): NewOffset(each.offset, metadata=each.metadata)
            for each in body.offsets
        }
    else:
        offsets = {name: NewOffset(offset) for name, offset in member.positions.items()}
    errors, safe = member.commit(offsets)
    await wait_safe(safe)
    results = []
    for name, new in offsets.items():
        results.append(OffsetResult(*name, new.offset))
        if (error := errors.get(name)) is not None:
            results[-1].error = to_problem(error)
    return shapes.OffsetResults(results)


async def delete_consumer(call: Call) -> None:
    """Delete a consumer, which leaves its group."""
    _find(call).leave()


def _find(call: Call) -> Member:
    member = call.service.members.get(call.path["group"], call.path["consumer"])
    member.heartbeat()
    return member


def _describe(member: Member) -> shapes.ConsumerDescription:
    return shapes.ConsumerDescription(
        member.member_id,
        member.group,
        list(member.wanted.topics),
        member.generation,
        to_names(sorted(member.positions)),
    )
