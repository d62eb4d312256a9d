"""Producers and transactions."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError
from flymq.model.errors.requests import InvalidRequest


class OutOfOrderSequence(FlyMQError):
    """The batch does not follow the producer's last one: something between is missing."""

    code = "OUT_OF_ORDER_SEQUENCE"
    hint = "The producer lost a batch; start a new producer id, and a new transaction if one was open."


class ProducerFenced(FlyMQError):
    """A newer producer has taken over this producer's identity."""

    code = "PRODUCER_FENCED"
    hint = "Stop this producer: another one of the same transactional id runs."


class UnknownProducer(FlyMQError):
    """The broker does not remember this producer."""

    code = "UNKNOWN_PRODUCER"
    hint = "Its records have expired; start a new producer id."


class InvalidTransactionState(FlyMQError):
    """The transaction is not in a state that allows this."""

    code = "INVALID_TRANSACTION_STATE"
    hint = "Begin a transaction first; abort one that failed before beginning the next."


class TransactionAborted(FlyMQError):
    """The broker has aborted the transaction: it was open for too long, or a crash interrupted it."""

    code = "TRANSACTION_ABORTED"
    hint = "Get a new epoch with INIT_PRODUCER and repeat the transaction from its beginning."


class TransactionInProgress(FlyMQError):
    """The producer's last transaction is still being ended."""

    code = "TRANSACTION_IN_PROGRESS"
    retriable = True
    hint = "Try again in a moment."


class InvalidTransactionTimeout(InvalidRequest):
    """The transaction timeout is not allowed."""

    code = "INVALID_TRANSACTION_TIMEOUT"
    hint = "The message names the limits."
