"""What only the HTTP gateway can say."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class MalformedHttp(FlyMQError):
    """The bytes on the connection are not a request of HTTP/1.1."""

    code = "MALFORMED_HTTP"
    hint = "Check the client, or what stands between it and the broker, against RFC 9112."


class RequestHeadTooLarge(FlyMQError):
    """The request line and the headers are larger than the broker accepts."""

    code = "REQUEST_HEAD_TOO_LARGE"
    hint = "Send fewer or shorter headers; cookies of other services on the same host count too."


class NoSuchResource(FlyMQError):
    """There is nothing at this path."""

    code = "NO_SUCH_RESOURCE"
    hint = "GET /docs lists the paths; those of the API begin with /api/v1."


class ForeignHost(FlyMQError):
    """The Host header names a host that is not this broker."""

    code = "FOREIGN_HOST"
    hint = "Use localhost or an address, or add the name to `rest.hosts`."


class ForeignOrigin(FlyMQError):
    """A web page of another origin may not write."""

    code = "FOREIGN_ORIGIN"
    hint = "Add the origin to `rest.cors_origins` if its pages may use the API."


class MethodNotAllowed(FlyMQError):
    """The resource does not support this method."""

    code = "METHOD_NOT_ALLOWED"
    hint = "The Allow header of the response lists the methods."


class NotAcceptable(FlyMQError):
    """The response is not available in any media type of the Accept header."""

    code = "NOT_ACCEPTABLE"
    hint = "Accept application/json, or application/x-ndjson for records."


class UnsupportedMediaType(FlyMQError):
    """The media type or content encoding of the body is not supported."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    hint = "Send application/json, or application/x-ndjson for records; uncompressed or with gzip."


class BodyTooSlow(FlyMQError):
    """The body did not arrive in time."""

    code = "BODY_TOO_SLOW"
    retriable = True
    hint = "Send it faster or in smaller pieces, or raise `rest.body_timeout_ms`."


class IdempotencyKeyReused(FlyMQError):
    """The Idempotency-Key was already used for another request."""

    code = "IDEMPOTENCY_KEY_REUSED"
    hint = "Use a new key for each request; reuse a key only to retry the same request."


class ConsumerNotFound(FlyMQError):
    """The group has no such HTTP consumer; it may have expired."""

    code = "CONSUMER_NOT_FOUND"
    hint = "A consumer that does not poll within its session timeout is removed; create a new one."


class TransactionNotFound(FlyMQError):
    """There is no such transactional id."""

    code = "TRANSACTION_NOT_FOUND"
    hint = "GET /api/v1/transactions lists them; unused ones expire."


class BrokerStarting(FlyMQError):
    """The broker is starting: it recovers its logs and does not serve requests yet."""

    code = "BROKER_STARTING"
    retriable = True
    hint = "Retry after a short wait; GET /startupz returns 200 once it is done."
