"""Connections, and who is behind them."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class Unauthenticated(FlyMQError):
    """The connection must authenticate first."""

    code = "UNAUTHENTICATED"
    hint = "Configure a username and a password for the client."


class AuthenticationFailed(FlyMQError):
    """The username or the password is wrong."""

    code = "AUTHENTICATION_FAILED"
    hint = "Check the credentials; the broker's log names the user and the address."


class PlaintextLogin(AuthenticationFailed):
    """Passwords are accepted only inside TLS."""

    code = "PLAINTEXT_LOGIN"
    hint = (
        "Connect with TLS. On a network that nobody can listen to, set `auth.plain_without_tls` of the broker to "
        "accept passwords without it."
    )


class TooManyLogins(FlyMQError):
    """Too many logins of this address have failed, or are waiting."""

    code = "TOO_MANY_LOGINS"
    retriable = True
    hint = "Wait a few seconds, then retry; check the credentials of all clients at this address."


class BrokerUnavailable(FlyMQError):
    """No broker could be reached."""

    code = "BROKER_UNAVAILABLE"
    retriable = True
    hint = "Check the address and that the broker is running: `flymq server start --dev` starts one on this machine."


class ConnectionLost(FlyMQError):
    """The connection was closed before the response arrived; the request may have been executed."""

    code = "CONNECTION_LOST"
    retriable = True
    hint = "Retry; an idempotent producer does so without duplicates."


class RequestTimedOut(FlyMQError):
    """The request timed out; it may have been executed."""

    code = "REQUEST_TIMED_OUT"
    retriable = True
    hint = "Retry, or raise `request_timeout_ms`."


class UnknownBrokerError(FlyMQError):
    """The broker returned an error that this client does not know."""

    code = "UNKNOWN_BROKER_ERROR"
    hint = "The broker may be newer than the client; upgrade the client."


class UnknownRetriableError(UnknownBrokerError):
    """The broker returned a retriable error that this client does not know."""

    code = "UNKNOWN_RETRIABLE_ERROR"
    retriable = True


class NotAPeer(FlyMQError):
    """An operation between brokers was requested by something that is not known as a broker of the cluster."""

    code = "NOT_A_PEER"
    retriable = True
    hint = "A broker that has just registered is known in a moment; clients cannot use this operation."
