"""How requests with many elements are split: see `flymq.gateways.pieces`."""

from __future__ import annotations

from flymq.gateways.pieces import Split
from flymq.wire.native.opcodes import Opcode

SPLIT_BYTES = 1 << 10
"""A smaller request has too few elements to be split."""

_BY_PARTITION = Split(("partitions",), ("partitions",))
_BY_OFFSET = Split(("offsets",), ("partitions",))

SPLITS: dict[int, Split] = {
    Opcode.PRODUCE_BATCH: _BY_PARTITION,
    Opcode.METADATA: Split(("topics",), ("topics",)),
    Opcode.LIST_OFFSETS: _BY_PARTITION,
    Opcode.DELETE_RECORDS: _BY_PARTITION,
    Opcode.FETCH_OFFSETS: _BY_PARTITION,
    Opcode.COMMIT: _BY_OFFSET,
    Opcode.TXN_COMMIT_OFFSETS: _BY_OFFSET,
}
