"""The opcodes of frames: one byte.

Requests are below 0x80; a response has the opcode of its request with the highest bit set. From 0xF0 on are frames
without a request: deliveries and errors. Requests 0x70 to 0x7F are never assigned, so the two cannot
collide.
"""

from __future__ import annotations

from enum import IntEnum

ANSWER_BIT = 0x80


class Opcode(IntEnum):
    """Every operation of protocol version 1."""

    PRODUCE = 0x01
    CONSUME = 0x02
    CREATE_TOPIC = 0x03
    DELETE_TOPIC = 0x04
    LIST_TOPICS = 0x05
    FETCH = 0x06
    PRODUCE_BATCH = 0x07
    LIST_OFFSETS = 0x08
    METADATA = 0x09
    DESCRIBE_TOPIC = 0x0A
    ALTER_TOPIC = 0x0B
    ADD_PARTITIONS = 0x0C
    DELETE_RECORDS = 0x0D
    DESCRIBE_CLUSTER = 0x0E
    PLACE_REPLICAS = 0x0F

    SUBSCRIBE = 0x10
    COMMIT = 0x11
    HEARTBEAT = 0x12
    LEAVE = 0x13
    SYNC = 0x14
    FETCH_OFFSETS = 0x15
    LIST_GROUPS = 0x16
    DESCRIBE_GROUP = 0x17
    DELETE_GROUP = 0x18
    RESET_OFFSETS = 0x19
    FIND_COORDINATOR = 0x1A

    BEGIN_TXN = 0x20
    COMMIT_TXN = 0x21
    ABORT_TXN = 0x22
    INIT_PRODUCER = 0x23
    TXN_COMMIT_OFFSETS = 0x24
    COMMIT_ATTEMPTS = 0x25

    HELLO = 0x30
    AUTHENTICATE = 0x31
    PING = 0x32

    START_PUSH = 0x40
    CREDIT = 0x41
    STOP_PUSH = 0x42

    # between brokers only
    JOIN_PEER = 0x50
    REPLICA_FETCH = 0x51
    WRITE_MARKERS = 0x52
    JOIN_TRANSACTION = 0x53
    ABORT_OWNED = 0x54
    DESCRIBE_LED = 0x58

    DELIVER = 0xF0
    ERROR = 0xFF


PEER_OPCODES = range(0x50, 0x60)
"""Operations between the brokers of a cluster."""


def answer_to(opcode: int) -> int:
    """Return the opcode of the response to a request."""
    return opcode | ANSWER_BIT
