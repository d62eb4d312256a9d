"""Entries of `__transactions` as older brokers wrote them: a data directory stays readable. The bytes are recorded."""

import pytest

from flymq.coordination.entries import (
    EndedValue,
    ProducerIdentity,
    TransactionKey,
    TransactionState,
    TransactionValue,
    read_entries,
)
from flymq.model.names import TopicPartition
from flymq.record.batch import encode_batch

KEY = "92ab7472616e73616374696f6ea3706179"
ORDERS = TopicPartition("orders", 0), TopicPartition("orders", 3)


def identity(epoch: int) -> ProducerIdentity:
    return ProducerIdentity(7, epoch)


BEFORE_KIP_890 = {
    "9a920700cdea60a5656d7074799090ff05c0c2c0": TransactionValue(identity(0), 60_000, changed_at_ms=5),
    "9a920701cdea60a76f6e676f696e679292a66f72646572730092a66f7264657273"
    "0391a762696c6c696e670a0cc0c294920700920701c3c2": TransactionValue(
        identity(1),
        60_000,
        TransactionState.ONGOING,
        ORDERS,
        ("billing",),
        began_at_ms=10,
        changed_at_ms=12,
        ended=EndedValue(identity(0), identity(1), committed=True),
    ),
    "9a920701cdea60aa636f6d6d697474696e679192a66f726465727300900a0d920702c2c0": TransactionValue(
        identity(1),
        60_000,
        TransactionState.COMMITTING,
        ORDERS[:1],
        began_at_ms=10,
        changed_at_ms=13,
        successor=identity(2),
    ),
    "9a920702cdea60a761626f727465649090ff0ec0c294920701920702c2c3": TransactionValue(
        identity(2),
        60_000,
        TransactionState.ABORTED,
        changed_at_ms=14,
        ended=EndedValue(identity(1), identity(2), committed=False, by_broker=True),
    ),
}


@pytest.mark.parametrize("raw", BEFORE_KIP_890)
def test_the_state_of_a_transactional_id_written_before_kip_890_is_read(raw: str) -> None:
    batch = encode_batch([(bytes.fromhex(KEY), bytes.fromhex(raw))], timestamp_ms=1)
    assert list(read_entries(batch, (TransactionKey,))) == [(TransactionKey("pay"), BEFORE_KIP_890[raw])]
