"""The connection itself: handshake, authentication, ping."""

from __future__ import annotations

from flymq import __version__
from flymq.broker.access.login import plain_message
from flymq.gateways.native.connection import NativeConnection
from flymq.model.errors import AuthenticationFailed, TooManyLogins
from flymq.wire.native.messages import session as wire


def hello(connection: NativeConnection, request: wire.Hello) -> wire.HelloAnswer:
    connection.caller.client_id = request.client_id
    service = connection.service
    return wire.HelloAnswer(
        server="FlyMQ",
        version=__version__,
        cluster_id=service.cluster.cluster_id,
        broker=service.cluster.broker_id,
        opcodes=connection.opcodes,
        payload_bytes_max=connection.shared.limits.request_bytes_max,
        authentication=service.access.mechanisms if service.access.is_required else [],
    )


async def authenticate(connection: NativeConnection, request: wire.Authenticate) -> wire.AuthenticateAnswer:
    if connection.is_logging_in:
        connection.close_when_sent()
        raise AuthenticationFailed("one login at a time")
    connection.is_logging_in = True
    try:
        caller = connection.caller
        login = connection.service.access.begin(request.mechanism, caller.address, is_encrypted=caller.is_encrypted)
        step = await login.step(plain_message(request.username, request.password))
        if step.principal is None:
            raise AuthenticationFailed(f"the mechanism {request.mechanism!r} requires more than a name and a password")
    except (AuthenticationFailed, TooManyLogins):
        connection.close_when_sent()
        raise
    finally:
        connection.is_logging_in = False
    connection.logged_in(step.principal)
    return wire.AuthenticateAnswer(principal=step.principal)


def ping(_connection: NativeConnection, _request: wire.Ping) -> wire.Done:
    return wire.Done()
