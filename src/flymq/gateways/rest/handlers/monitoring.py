"""Health, metrics and diagnosis of the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec
from starlette.responses import Response, StreamingResponse

from flymq.gateways.rest.http.bodies import JSON
from flymq.gateways.rest.schema import shapes
from flymq.gateways.rest.schema.operations import Call
from flymq.host.time_slices import TimeSlice

METRICS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def live(_call: Call) -> shapes.Probe:
    """Return 200 while the event loop runs."""
    return shapes.Probe("ok")


async def started(call: Call) -> Response:
    """Return whether the broker has started."""
    return _probe(is_fine=call.rest.observed.is_started)


async def ready(call: Call) -> Response:
    """Return whether the broker serves clients."""
    return _probe(is_fine=call.rest.observed.is_ready)


def _probe(*, is_fine: bool) -> Response:
    probe = shapes.Probe("ok" if is_fine else "starting")
    return Response(msgspec.json.encode(probe), 200 if is_fine else 503, media_type=JSON)


async def health(call: Call) -> Response:
    """Return the health of the broker."""
    found = call.rest.observed.health()
    return Response(msgspec.json.encode(found), 200 if call.rest.observed.is_ready else 503, media_type=JSON)


async def metrics(call: Call) -> Response:
    """Return the metrics of the broker, for Prometheus."""
    return _page(call.rest.observed.metrics(detailed=False))


async def detailed_metrics(call: Call) -> Response:
    """Return the metrics of each topic, partition and group, for Prometheus."""
    return _page(call.rest.observed.metrics(detailed=True))


def _page(lines: Iterator[str]) -> Response:
    return StreamingResponse(in_slices(lines), media_type=METRICS_TEXT)


async def in_slices(lines: Iterator[str]) -> AsyncIterator[str]:
    """Send the lines in blocks of a few milliseconds of work."""
    piece: list[str] = []
    slice_ = TimeSlice()
    for line in lines:
        piece.append(line)
        if slice_.is_over:
            yield "".join(piece)
            piece = []
            await slice_.yield_if_over()
    yield "".join(piece)


async def diagnose(call: Call) -> shapes.Diagnosis:
    """Return the current bottlenecks of the broker."""
    return await call.rest.observed.diagnosis()
