"""Connections, and who is behind them."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class Unauthenticated(FlyMQError):
    """The connection must authenticate first."""

    code = "UNAUTHENTICATED"
    hint = "Give the client a username and a password."


class AuthenticationFailed(FlyMQError):
    """The username or the password is wrong."""

    code = "AUTHENTICATION_FAILED"
    hint = "Check the credentials; the broker's log names the user and the address."


class BrokerUnavailable(FlyMQError):
    """No broker could be reached."""

    code = "BROKER_UNAVAILABLE"
    retriable = True
    hint = "Check the address and that the broker runs: `flymq server start --dev` starts one on this machine."


class ConnectionLost(FlyMQError):
    """The connection ended before the answer came; the request may have been carried out."""

    code = "CONNECTION_LOST"
    retriable = True
    hint = "Try again; an idempotent producer does so without duplicates."


class RequestTimedOut(FlyMQError):
    """The answer did not come in time; the request may have been carried out."""

    code = "REQUEST_TIMED_OUT"
    retriable = True
    hint = "Try again, or allow more time with `request_timeout_ms`."


class UnknownBrokerError(FlyMQError):
    """The broker reported an error that this client does not know."""

    code = "UNKNOWN_BROKER_ERROR"
    hint = "The broker may be newer than the client; upgrade the client."


class UnknownRetriableError(UnknownBrokerError):
    """The broker reported an error that this client does not know, and that another try can help."""

    code = "UNKNOWN_RETRIABLE_ERROR"
    retriable = True
