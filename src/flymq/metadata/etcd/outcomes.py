"""What became of a request: this decides whether it may be repeated.

NotDone   certainly without effect: it was not sent, or was refused before anything was done; repeat it
Lost      it was sent, and there is no clear response; a write may have happened
Refused   etcd's final answer
"""

from __future__ import annotations

import msgspec

from flymq.metadata.attempts import Lost, NotDone
from flymq.metadata.etcd.messages import Failure, parse_failure
from flymq.model.errors import InvalidTxn, MetadataError, MetadataRefused, RevisionCompacted, SessionEnded

# gRPC status codes
INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION, OUT_OF_RANGE, UNAUTHENTICATED = 3, 5, 9, 11, 16
_MAY_HAVE_HAPPENED = frozenset((1, 2, 4, 10, 13, 14, 15))  # cancelled, unknown, deadline, …, unavailable, data loss
_NOT_DONE = (
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: not capable",
    "etcdserver: rpc not supported for learner",
    "etcdserver: server is likely overloaded",
    "error while dialing",  # the gateway did not reach its own server
)
_TOKEN_EXPIRED = ("invalid auth token", "revision of auth store is old")


class TokenExpired(NotDone):
    pass


class Refused(Exception):
    """Etcd's final answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def outcome_of(status: int, body: bytes) -> Exception:
    """Return what the response to a failed call says."""
    try:
        failure = parse_failure(body)
    except msgspec.MsgspecError:
        return Lost(f"HTTP status {status}: {body[:200]!r}")  # a proxy, perhaps
    return outcome_of_failure(failure)


def outcome_of_failure(failure: Failure) -> Exception:
    message = failure.message
    code = failure.code if failure.code is not None else failure.grpc_code
    if any(text in message for text in _TOKEN_EXPIRED):
        return TokenExpired(message)
    if any(text in message.lower() for text in _NOT_DONE):
        return NotDone(message)
    if code is None or code in _MAY_HAVE_HAPPENED:
        return Lost(message)
    return Refused(code, message)


def to_error(refused: Refused) -> MetadataError:
    """Return the error of the store that etcd's answer means."""
    if refused.code == NOT_FOUND and "lease not found" in refused.message:
        return SessionEnded("the session has ended: etcd has no such lease")
    if refused.code == OUT_OF_RANGE and "compacted" in refused.message:
        return RevisionCompacted(refused.message)
    if refused.code == INVALID_ARGUMENT and (
        "too large" in refused.message or "too many operations" in refused.message
    ):
        return InvalidTxn(
            refused.message, hint="Raise --max-txn-ops and --max-request-bytes of etcd to their defaults."
        )
    return MetadataRefused(f"etcd refuses the request: {refused.message}")
