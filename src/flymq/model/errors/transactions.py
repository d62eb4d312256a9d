"""Producers and transactions."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidRequest


class OutOfOrderSequence(FlyMQError):
    """The sequence number of the batch is out of order: a batch before it is missing."""

    code = "OUT_OF_ORDER_SEQUENCE"
    hint = "The producer lost a batch; get a new producer id, and restart the transaction if one was open."


class ProducerFenced(FlyMQError):
    """The producer was fenced by a newer one with the same transactional id."""

    code = "PRODUCER_FENCED"
    hint = "Stop this producer: another one with the same transactional id is running."


class WrongProducerId(ProducerFenced):
    """The transactional id belongs to a producer with another id."""

    code = "WRONG_PRODUCER_ID"
    hint = "Stop this producer, or get the id of this transactional id with INIT_PRODUCER."


class CoordinatorEpochFenced(FlyMQError):
    """A later coordinator has ended transactions of this producer in the partition."""

    code = "COORDINATOR_EPOCH_FENCED"
    hint = "Describe the producers of the partition again, and use the coordinator epoch that is shown there."


class UnknownProducer(FlyMQError):
    """The producer id is unknown to the broker."""

    code = "UNKNOWN_PRODUCER"
    hint = "The producer id has expired with its records; get a new one."


class InvalidTransactionState(FlyMQError):
    """The operation is not allowed in the current state of the transaction."""

    code = "INVALID_TRANSACTION_STATE"
    hint = "Begin a transaction first; abort a failed one before beginning the next."


class TransactionAborted(FlyMQError):
    """The broker aborted the transaction: it timed out, or the broker crashed."""

    code = "TRANSACTION_ABORTED"
    hint = "Get a new epoch with INIT_PRODUCER and retry the whole transaction."


class TransactionInProgress(FlyMQError):
    """The producer's previous transaction is still ending."""

    code = "TRANSACTION_IN_PROGRESS"
    retriable = True
    hint = "Retry after a short wait."


class StaleConnection(FlyMQError):
    """The request arrived on a connection that its producer has given up: it may be a late repetition."""

    code = "STALE_CONNECTION"
    retriable = True
    hint = "Use the newest connection for the requests of a transactional id, or open another one."


class InvalidTransactionTimeout(InvalidRequest):
    """The transaction timeout is out of range."""

    code = "INVALID_TRANSACTION_TIMEOUT"
    hint = "The message gives the limits."
