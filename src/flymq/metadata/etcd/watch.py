"""Follow the changes under a prefix of etcd, across lost connections, other members and silence.

The position of a watch is the revision of the last event shown, plus one; never the revision in the header of a
response, unless it reports progress: that one may be ahead of events still to come.

A connection can be silent because nothing happens, or because it is dead. Over HTTP/1.1 a client cannot ask for
progress. So a watch that was silent for a while asks for the latest revision, by another connection, and if it may have
missed something it opens the stream anew from its position, at another member. What others write under other prefixes
causes that too; it is cheap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import msgspec

from flymq.host.failure_log import FailureLog
from flymq.metadata.attempts import Lost, NotDone
from flymq.metadata.etcd.connection import HttpStream
from flymq.metadata.etcd.members import Members
from flymq.metadata.etcd.messages import WATCH, WatchResponse, encode_watch, event_batches, parse_watch
from flymq.metadata.etcd.outcomes import Refused, TokenExpired, outcome_of_failure, to_error
from flymq.metadata.store import EventBatch
from flymq.model.errors import MetadataRefused, MetadataUnavailable, RevisionCompacted

logger = logging.getLogger(__name__)

SILENCE_S = 3.0
_PAUSE_S = 0.2


class Watch:
    """One watch: a position, and a stream that is opened as often as needed."""

    def __init__(
        self,
        members: Members,
        root: str,
        prefix: str,
        from_revision: int,
        *,
        latest_revision: Callable[[], Awaitable[int | None]],
        is_closed: Callable[[], bool],
    ) -> None:
        """`root` is the prefix of all keys. `latest_revision` asks etcd, and returns None if nobody responds."""
        self._members = members
        self._root = root
        self._prefix = prefix
        self._next_revision = from_revision
        self._shown_revision = from_revision - 1
        self._latest_revision = latest_revision
        self._is_closed = is_closed
        self._failures = FailureLog(logger, "the watch of %r in etcd is interrupted")

    async def batches(self) -> AsyncIterator[EventBatch]:
        while not self._is_closed():
            try:
                stream = await self._members.stream(WATCH, encode_watch(self._root + self._prefix, self._next_revision))
            except (NotDone, Lost) as error:
                await self._interrupted(error)
                continue
            except MetadataUnavailable:  # closed
                return
            except Refused as refused:
                raise to_error(refused) from refused
            is_bad = False
            try:
                while (message := await self._next(stream)) is not None:
                    self._failures.succeeded(self._prefix)
                    for batch in self._take(message):
                        yield batch
                is_bad = True  # silent, and something has happened
            except TokenExpired:
                self._members.forget_token()
            except (NotDone, Lost, OSError) as error:
                is_bad = True
                if not self._is_closed():
                    await self._interrupted(error)
            finally:
                self._members.end_stream(stream, is_bad=is_bad)

    async def _interrupted(self, error: Exception) -> None:
        self._failures.failed(self._prefix, MetadataUnavailable(str(error) or "the connection was lost"))
        await asyncio.sleep(_PAUSE_S)

    async def _next(self, stream: HttpStream) -> WatchResponse | None:
        """Return the next message; None if the stream has been silent for too long."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    line = await stream.line()
            except TimeoutError:
                latest_revision = await self._latest_revision()
                if latest_revision is not None and latest_revision > self._shown_revision:
                    self._shown_revision = latest_revision  # once for each revision
                    return None
                continue
            if line is None:
                raise Lost("etcd has ended the watch")
            return _parse(line)

    def _take(self, message: WatchResponse) -> Iterator[EventBatch]:
        if message.compact_revision:
            wanted, oldest = self._next_revision, message.compact_revision
            raise RevisionCompacted(f"revision {wanted} has been compacted; the oldest one available is {oldest}")
        if message.canceled:
            raise _cancelled(message.cancel_reason)
        for batch in event_batches(self._root, message.events):
            if batch.revision >= self._next_revision:
                self._next_revision = batch.revision + 1
                self._shown_revision = max(self._shown_revision, batch.revision)
                yield batch
        if not message.events and not message.created:  # the server's report of progress
            self._next_revision = max(self._next_revision, message.header.revision + 1)
            self._shown_revision = max(self._shown_revision, message.header.revision)


def _parse(line: bytes) -> WatchResponse:
    try:
        message = parse_watch(line)
    except msgspec.MsgspecError as error:
        raise Lost(f"not a message of a watch: {line[:200]!r}") from error
    if message.error is not None:
        outcome = outcome_of_failure(message.error)
        raise to_error(outcome) if isinstance(outcome, Refused) else outcome
    if message.result is None:
        raise Lost(f"not a message of a watch: {line[:200]!r}")
    return message.result


def _cancelled(reason: str) -> Exception:
    if "invalid auth token" in reason or "auth store is old" in reason:
        return TokenExpired(reason)
    if "permission denied" in reason:
        return MetadataRefused(f"etcd refuses the watch: {reason}")
    return Lost(f"etcd has cancelled the watch: {reason}")
