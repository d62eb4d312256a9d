"""The connection itself: greeting, login, liveness."""

from __future__ import annotations

from flymq import __version__
from flymq.gateways.native.connection import NativeConnection
from flymq.model.errors import AuthenticationFailed
from flymq.wire.native.messages import session as wire


def hello(connection: NativeConnection, request: wire.Hello) -> wire.HelloAnswer:
    connection.client_id = request.client_id
    broker = connection.broker
    return wire.HelloAnswer(
        server="FlyMQ",
        version=__version__,
        cluster_id=broker.cluster_id,
        broker=broker.broker_id,
        opcodes=connection.opcodes,
        payload_bytes_max=connection.shared.limits.request_bytes_max,
        authentication=["PLAIN"] if broker.access.is_required else [],
    )


async def authenticate(connection: NativeConnection, request: wire.Authenticate) -> wire.AuthenticateAnswer:
    if request.mechanism != "PLAIN":
        raise AuthenticationFailed(f"the mechanism {request.mechanism!r} is not offered", hint="Use PLAIN.")
    if not await connection.broker.access.login(request.username, request.password, connection.peer_host):
        raise AuthenticationFailed("unknown user or wrong password")
    connection.principal = request.username
    connection.is_logged_in = True
    return wire.AuthenticateAnswer(principal=request.username)


def ping(_connection: NativeConnection, _request: wire.Ping) -> wire.Done:
    return wire.Done()
