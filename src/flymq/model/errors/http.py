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
    hint = "GET /docs lists the paths; the API's begin with /api/v1."


class MethodNotAllowed(FlyMQError):
    """The resource does not know this method."""

    code = "METHOD_NOT_ALLOWED"
    hint = "The Allow header of the answer lists the methods."


class NotAcceptable(FlyMQError):
    """The answer cannot be given in any form that the Accept header names."""

    code = "NOT_ACCEPTABLE"
    hint = "Accept application/json, or application/x-ndjson for records."


class UnsupportedMediaType(FlyMQError):
    """The body is of a type, or encoded in a way, that is not read here."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    hint = "Send application/json, for records also application/x-ndjson; as it is, or packed by gzip."


class BodyTooSlow(FlyMQError):
    """The body did not arrive in time."""

    code = "BODY_TOO_SLOW"
    retriable = True
    hint = "Send it faster or in smaller pieces, or raise `rest.body_timeout_ms`."


class IdempotencyKeyReused(FlyMQError):
    """The Idempotency-Key was used before, for something else."""

    code = "IDEMPOTENCY_KEY_REUSED"
    hint = "Make a new key for each request; repeat a key only with the very same request."


class ConsumerNotFound(FlyMQError):
    """The group has no such consumer over HTTP, or no longer."""

    code = "CONSUMER_NOT_FOUND"
    hint = "A consumer that does not poll within its session timeout is dropped; create a new one."


class TransactionNotFound(FlyMQError):
    """There is no such transactional id."""

    code = "TRANSACTION_NOT_FOUND"
    hint = "GET /api/v1/transactions lists them; those unused for long are forgotten."


class BrokerStarting(FlyMQError):
    """The broker reads what is on its disk and does not serve yet."""

    code = "BROKER_STARTING"
    retriable = True
    hint = "Try again in a moment; GET /startupz tells when it is done."
