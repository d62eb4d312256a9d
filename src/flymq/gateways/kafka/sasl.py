"""SASL authentication: the client chooses a mechanism, then messages are exchanged until it is authenticated.

After version 1 of the handshake these messages are sent in requests; after version 0, which older clients use, as raw
frames. A failed login closes the connection.
"""

from __future__ import annotations

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.model.errors import AuthenticationFailed, TooManyLogins
from flymq.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from flymq.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handshake(connection: KafkaConnection, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
    access = connection.service.access
    if request.mechanism not in access.mechanisms:
        return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, access.mechanisms)
    caller = connection.caller
    connection.login = access.begin(request.mechanism, caller.address, is_encrypted=caller.is_encrypted)
    if version == 0:
        connection.takes_token = log_in
    return SaslHandshakeResponse(ErrorCode.NONE, access.mechanisms)


async def authenticate(
    connection: KafkaConnection, request: SaslAuthenticateRequest, _version: int
) -> SaslAuthenticateResponse:
    if connection.login is None or connection.is_logging_in:
        connection.close_when_sent()
        return SaslAuthenticateResponse(
            ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake must be sent before SaslAuthenticate, and one login at a time"
        )
    try:
        answer = await log_in(connection, request.auth_bytes)
    except AuthenticationFailed as error:
        connection.close_when_sent()
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, error.message)
    except TooManyLogins as error:
        # The response is not sent: Kafka's clients retry after a lost connection, but give up after a failed login.
        connection.abort()
        return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, error.message)
    return SaslAuthenticateResponse(auth_bytes=answer)


async def log_in(connection: KafkaConnection, message: bytes) -> bytes:
    """Process the next message of a login; return the response."""
    assert connection.login is not None, "the handshake has started the login"
    connection.is_logging_in = True
    try:
        step = await connection.login.step(message)
    except (AuthenticationFailed, TooManyLogins) as error:
        connection.service.accounts.failed(connection.caller, error)
        raise
    finally:
        connection.is_logging_in = False
    if step.principal is not None:
        connection.logged_in(step.principal)
    return step.challenge
