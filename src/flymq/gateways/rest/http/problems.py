"""Errors as problem details (RFC 9457): `application/problem+json` with FlyMQ's stable code and hint."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from flymq.model import errors
from flymq.model.errors import FlyMQError

PROBLEM_JSON = "application/problem+json"

_STATUS: dict[type[FlyMQError], int] = {
    FlyMQError: 500,
    errors.InvalidRequest: 400,
    errors.BrokenFrame: 400,
    errors.UnsupportedVersion: 400,
    errors.UnknownOpcode: 400,
    errors.RequestTooLarge: 413,
    errors.MessageTooLarge: 413,
    errors.InvalidTopicName: 400,
    errors.InvalidSetting: 400,
    errors.InvalidPartitions: 400,
    errors.InvalidReplicationFactor: 400,
    errors.InvalidBatch: 400,
    errors.MalformedHttp: 400,
    errors.RequestHeadTooLarge: 431,
    errors.ForeignHost: 403,
    errors.ForeignOrigin: 403,
    errors.NoSuchResource: 404,
    errors.MethodNotAllowed: 405,
    errors.NotAcceptable: 406,
    errors.BodyTooSlow: 408,
    errors.UnsupportedMediaType: 415,
    errors.IdempotencyKeyReused: 422,
    errors.BrokerStarting: 503,
    errors.BrokerUnavailable: 503,
    errors.TopicNotFound: 404,
    errors.TopicExists: 409,
    errors.TopicIsInternal: 403,
    errors.PartitionNotFound: 404,
    errors.NotLeader: 503,
    errors.FencedLeaderEpoch: 409,
    errors.UnknownLeaderEpoch: 503,
    errors.OffsetNotAvailable: 503,
    errors.OffsetOutOfRange: 416,
    errors.RecordNotFound: 404,
    errors.NotEnoughReplicas: 503,
    errors.InvalidReplicaAssignment: 400,
    errors.NoReassignmentInProgress: 409,
    errors.ElectionNotNeeded: 409,
    errors.PreferredLeaderNotAvailable: 503,
    errors.EligibleLeadersNotAvailable: 503,
    errors.OutOfOrderSequence: 409,
    errors.ProducerFenced: 409,
    errors.CoordinatorEpochFenced: 409,
    errors.UnknownProducer: 409,
    errors.InvalidTransactionState: 409,
    errors.TransactionAborted: 409,
    errors.TransactionInProgress: 409,
    errors.TransactionNotFound: 404,
    errors.StorageError: 503,
    errors.DiskFull: 507,
    errors.MetadataUnavailable: 503,
    errors.NotCoordinator: 503,
    errors.CoordinatorLoading: 503,
    errors.CoordinatorOffline: 503,
    errors.GroupNotFound: 404,
    errors.ConsumerNotFound: 404,
    errors.UnknownMember: 409,
    errors.StaleGeneration: 409,
    errors.RebalanceInProgress: 409,
    errors.MemberIdRequired: 409,
    errors.MemberFenced: 409,
    errors.InconsistentAssignors: 409,
    errors.GroupFull: 409,
    errors.GroupNotEmpty: 409,
    errors.OffsetMetadataTooLarge: 400,
    errors.UnstableOffsets: 409,
    errors.Unauthenticated: 401,
    errors.AuthenticationFailed: 401,
    errors.UnknownMetricsSubscription: 409,
    errors.MetricsTooLarge: 413,
    errors.MetricsTooOften: 429,
    errors.PlaintextLogin: 403,
    errors.TooManyLogins: 429,
}


class Problem(msgspec.Struct):
    """An error: `code` for programs, `detail` and `hint` for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    retriable: bool


def status_of(error: type[FlyMQError]) -> int:
    """Return the HTTP status of an error: that of its class, or of its closest base class that has one."""
    return next(_STATUS[kind] for kind in error.__mro__ if kind in _STATUS)


def to_problem(error: FlyMQError) -> Problem:
    title = (type(error).__doc__ or "").split("\n")[0].rstrip(".")
    urn = f"urn:flymq:error:{error.code}"
    return Problem(urn, title, status_of(type(error)), error.message, error.code, error.hint, error.retriable)


def problem_response(error: FlyMQError) -> Response:
    problem = to_problem(error)
    headers = {"WWW-Authenticate": 'Basic realm="FlyMQ", charset="UTF-8"'} if problem.status == 401 else {}
    if problem.status in (429, 503):
        headers["Retry-After"] = "1"
    if isinstance(error, (errors.AuthenticationFailed, errors.TooManyLogins)):
        headers["Connection"] = "close"  # as in the other protocols
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM_JSON)
