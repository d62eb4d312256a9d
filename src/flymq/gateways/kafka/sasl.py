"""Login by SASL PLAIN: a name and a password in one message. Over TLS, unless the network is trusted.

After version 1 of the handshake that message is part of a request; after version 0, which older clients use, it is a
frame of its own.
"""

from __future__ import annotations

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.model.errors import AuthenticationFailed
from flymq.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from flymq.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN = "PLAIN"


def handshake(connection: KafkaConnection, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
    if request.mechanism != PLAIN:
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, [PLAIN])
    connection.sasl_mechanism = PLAIN
    if version == 0:
        connection.takes_token = log_in
    return SaslHandshakeResponse(ErrorCode.NONE, [PLAIN])


async def authenticate(
    connection: KafkaConnection, request: SaslAuthenticateRequest, _version: int
) -> SaslAuthenticateResponse:
    if not connection.sasl_mechanism:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes before SaslAuthenticate")
    if not await log_in(connection, request.auth_bytes):
        connection.close_when_sent()
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "unknown user or wrong password")
    return SaslAuthenticateResponse()


async def log_in(connection: KafkaConnection, message: bytes) -> bool:
    """Let a client in if its name and password are right."""
    user, password = _parse_plain(message)
    if not await connection.broker.access.login(user, password, connection.peer_host):
        connection.shared.requests.failed(connection.protocol, AuthenticationFailed.code)
        return False
    connection.principal = user
    connection.is_logged_in = True
    return True


def _parse_plain(message: bytes) -> tuple[str, str]:
    """Return name and password from `[authorization id] NUL name NUL password`; empty ones when it is none."""
    parts = message.decode(errors="replace").split("\0")
    return (parts[1], parts[2]) if len(parts) == 3 else ("", "")
