"""The specification's examples are what the code writes."""

from __future__ import annotations

import re
from pathlib import Path

from crc32c import crc32c

from flymq.record import _plain
from flymq.record.batch import encode_batch
from flymq.record.control import Marker, MarkerType, encode_marker
from flymq.record.header import HEADER_SIZE, assign
from flymq.record.partitioning import partition_for_key

DOC = (Path(__file__).parents[3] / "docs" / "formats" / "record-batch.md").read_text()


def example(first_bytes: str) -> bytes:
    """Return the bytes of the example that begins so; its lines are bytes, two spaces and words."""
    (block,) = [block for block in re.findall(r"```\n(.*?)```", DOC, re.S) if block.startswith(first_bytes)]
    return b"".join(bytes.fromhex(line.split("  ")[0]) for line in block.splitlines())


def test_the_example_of_a_batch_is_what_we_write() -> None:
    batch = encode_batch(
        [(b"k", b"hi", [("n", b"\x07")], 1_700_000_000_000), (None, None, (), 1_700_000_000_003)],
        producer_id=9,
        producer_epoch=0,
        base_sequence=4,
    )
    assign(batch, 0, base_offset=42, leader_epoch=1)
    assert batch == example("00 00 00 00 00 00 00 2A")


def test_the_example_of_a_marker_is_what_we_write() -> None:
    marker = encode_marker(Marker(MarkerType.COMMIT, 9, 0, 2, 1_700_000_000_005))
    assert marker[HEADER_SIZE:] == example("20 00 00 00")


def test_the_examples_of_varints_are_what_we_write() -> None:
    numbers = {"2³¹ − 1": 2**31 - 1, "-2⁶³": -(2**63)}
    rows = re.findall(r"^ *(-?[\d⁶³¹ −]+?)  +[\d⁶⁴³² −]+?  +([0-9A-F]{2}(?: [0-9A-F]{2})*)$", DOC, re.M)
    assert len(rows) == 9
    for number, written in rows:
        value = numbers.get(number) or int(number)
        assert _plain._varint(value) == bytes.fromhex(written)


def test_the_other_figures_are_right() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert [partition_for_key(key, 1000) for key in (b"", b"a", b"abc", b"123456789")] == [681, 524, 107, 566]
