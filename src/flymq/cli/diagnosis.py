"""Get the current bottlenecks of a broker, over HTTP on the port shared by all protocols."""

from __future__ import annotations

from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection

import msgspec

from flymq.client.settings import ConnectionConfig


class Limit(msgspec.Struct):
    """A bottleneck of the broker, from `GET /api/v1/diagnosis`."""

    what: str
    text: str
    advice: str


class _Diagnosis(msgspec.Struct):
    limits: list[Limit]


def ask_limits(config: ConnectionConfig) -> list[Limit] | None:
    """Return the bottlenecks of the broker; None if it cannot tell, for example because HTTP is off."""
    host, port = config.addresses[0]
    timeout_s = config.request_timeout_ms / 1000
    context = config.ssl_context()
    if context is None:
        connection = HTTPConnection(host, port, timeout=timeout_s)
    else:
        connection = HTTPSConnection(host, port, timeout=timeout_s, context=context)
    headers = {}
    if config.username is not None:
        headers["Authorization"] = "Basic " + b64encode(f"{config.username}:{config.password}".encode()).decode()
    try:
        connection.request("GET", "/api/v1/diagnosis", headers=headers)
        answer = connection.getresponse()
        return msgspec.json.decode(answer.read(), type=_Diagnosis).limits if answer.status == 200 else None
    except (OSError, HTTPException, msgspec.DecodeError):
        return None
    finally:
        connection.close()
