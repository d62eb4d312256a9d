"""What a client sends is checked record by record before any of it is written."""

from __future__ import annotations

import gzip
from struct import pack_into
from typing import Any

import pytest
from tests.unit.storage.batches import (
    NOW_MS,
    append,
    append_unchecked,
    batch,
    open_simulated,
    poison,
    records,
    runs,
    settings,
    with_payload,
)

from flymq.host.tasks import run_steps_here
from flymq.model.delivery import TopicCompression
from flymq.model.errors import (
    CorruptBatch,
    DecompressedTooLarge,
    EmptyBatch,
    FlyMQError,
    InvalidBatch,
    InvalidRecord,
    InvalidTimestamp,
    KeyRequired,
    MessageTooLarge,
)
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression, compress
from flymq.record.header import HEADER_SIZE, parse_header, renew_checksum
from flymq.storage.batch_validation import (
    CHECK_COST_MAX,
    CheckedBatches,
    check_cost,
    check_in_thread,
    must_recompress,
)
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog

PACKED = [each for each in Compression if each is not Compression.NONE]
COMPACTED = [settings(cleanup_policy="compact"), settings(cleanup_policy="compact,delete")]


def changed(original: bytes, at: int, layout: str, number: int) -> bytes:
    """The batch with one field of its header set, and a right checksum."""
    copy = bytearray(original)
    pack_into(layout, copy, at, number)
    renew_checksum(copy, 0, len(copy))
    return bytes(copy)


def counting(original: bytes, count: int) -> bytes:
    """The batch with another number of records in its header."""
    return changed(changed(original, 57, ">i", count), 23, ">i", count - 1)


def refused(error: type[FlyMQError], sent: bytes, config: Any = None) -> FlyMQError:
    """Send a batch to a log on disk and one in memory: both refuse it, and write nothing."""
    _, log = open_simulated(config)
    logs: list[Log | MemoryLog] = [log, MemoryLog("orders-0", config or settings())]
    for each in logs:
        append(each, batch("before", key="k"))
        with pytest.raises(error) as caught:
            append(each, sent)
        assert each.end_offset == 1
        append(each, batch("after", key="k"))
        assert [record.value for record in records(each)] == [b"before", b"after"]
    return caught.value


# --- framing


def test_noise_with_a_right_checksum_is_refused() -> None:
    error = refused(InvalidRecord, poison())
    assert error.message.startswith("record 0: ")


def test_five_records_declared_and_one_present_is_refused() -> None:
    assert "more records than its bytes can hold" in refused(InvalidBatch, counting(batch("one"), 5)).message
    refused(InvalidRecord, counting(batch("one" * 100), 5))


def test_more_records_than_declared_are_refused() -> None:
    assert "after the last record" in refused(InvalidBatch, counting(batch("one", "two"), 1)).message


def test_an_empty_batch_that_declares_two_billion_records_is_refused() -> None:
    refused(InvalidBatch, counting(with_payload(batch("one"), b""), (1 << 31) - 1))


@pytest.mark.parametrize("count", [0, -1, -(1 << 31)])
def test_a_batch_without_records_is_refused(count: int) -> None:
    refused(EmptyBatch if count == 0 else InvalidBatch, changed(batch("one"), 57, ">i", count))


def test_a_wrong_checksum_is_told_apart_from_wrong_records() -> None:
    torn = bytearray(poison())
    torn[-1] ^= 1
    refused(CorruptBatch, bytes(torn))


@pytest.mark.parametrize("compression", PACKED)
def test_noise_inside_a_compressed_batch_is_refused(compression: Compression) -> None:
    good = bytes(encode_batch([(b"k", b"v" * 500)] * 20, timestamp_ms=NOW_MS, compression=compression))
    noise = bytes(compress(b"\xff" * 5_000, compression))
    assert refused(InvalidRecord, with_payload(good, noise)).message.startswith("record 0: ")
    refused(InvalidBatch, with_payload(good, good[HEADER_SIZE:-9]))
    refused(InvalidBatch, with_payload(good, b""))
    refused(InvalidRecord, counting(good, 21))
    refused(InvalidBatch, counting(good, 19))


def test_the_error_names_the_record() -> None:
    payload = batch("a", "b", "c")[HEADER_SIZE:]
    size = len(payload) // 3
    renumbered = bytearray(payload)
    renumbered[2 * size + 3] = 2  # offset delta 1 again
    error = refused(InvalidRecord, with_payload(batch("a", "b", "c"), bytes(renumbered)))
    assert isinstance(error, InvalidRecord)
    assert error.indexes == [2]
    assert "record 2" in error.message


# --- time


@pytest.mark.parametrize("compression", Compression)
def test_a_wrong_latest_time_is_corrected_as_kafka_does(compression: Compression) -> None:
    sent = bytes(
        encode_batch([(b"k", b"v" * 300, (), NOW_MS), (b"k", b"v" * 300, (), NOW_MS + 50)], compression=compression)
    )
    _, log = open_simulated()
    append(log, changed(sent, 35, ">q", -1))
    run = log.read(0, bytes_max=1 << 20)
    assert run is not None
    assert run.read()[16:] == sent[16:]
    found = run_steps_here(log.find_time(NOW_MS + 1))
    assert found is not None
    assert (found.offset, found.timestamp) == (1, NOW_MS + 50)


# --- keys


@pytest.mark.parametrize("config", COMPACTED, ids=["compact", "compact,delete"])
@pytest.mark.parametrize("compression", Compression)
def test_a_record_without_a_key_is_refused_in_a_compacted_topic_and_named(
    compression: Compression, config: Any
) -> None:
    entries = [(b"k", b"v" * 300), (None, b"v" * 300), (b"", b"v" * 300), (None, None)]
    sent = bytes(encode_batch(entries, timestamp_ms=NOW_MS, compression=compression))
    error = refused(KeyRequired, sent, config)
    assert isinstance(error, KeyRequired)
    assert error.indexes == [1, 3]


def test_a_record_without_a_key_is_welcome_in_other_topics() -> None:
    _, log = open_simulated()
    assert append(log, batch("a")) == [0]


# --- bombs, and batches that take long


def gzip_bomb(members: int = 1) -> bytes:
    return gzip.compress(bytes(65 << 20), 1) + gzip.compress(b"") * (members - 1)


def zstd_bomb() -> bytes:
    block = ((128 << 10) << 3 | 2).to_bytes(3, "little") + b"x"
    return bytes.fromhex("28b52ffd 0058") + block * 600 + (3).to_bytes(3, "little") + b"x"


@pytest.mark.parametrize(
    ("compression", "bomb"),
    [
        (Compression.GZIP, gzip_bomb()),
        (Compression.GZIP, gzip_bomb(members=2)),
        (Compression.GZIP, gzip.compress(b"") * 40_000),
        (Compression.ZSTD, zstd_bomb()),
        (Compression.SNAPPY, bytes.fromhex("ffffffff0f") + b"\0x"),
        (Compression.SNAPPY, b"\x82SNAPPY\0" + bytes(8) + bytes.fromhex("00000001 00") * 150_000),
    ],
    ids=["gzip", "gzip that hides its size", "empty gzip", "zstd", "snappy", "empty snappy"],
)
def test_a_bomb_is_refused(compression: Compression, bomb: bytes) -> None:
    header = changed(batch("one"), 21, ">h", compression)
    refused(DecompressedTooLarge, with_payload(header, bomb))


@pytest.mark.parametrize("compression", Compression)
def test_the_cost_of_a_check_grows_with_what_there_is_to_decompress(compression: Compression) -> None:
    def encoded(size: int) -> bytes:
        return bytes(encode_batch([(b"k", b"v" * 1_000)] * (size // 1_000), compression=compression))

    few, some, many = (check_cost(encoded(size)) for size in (20_000, 200_000, 9 << 20))
    assert few < some < CHECK_COST_MAX < many
    assert check_cost(batch("small") + encoded(9 << 20)) > CHECK_COST_MAX
    assert check_cost(encoded(200_000) * 30) > CHECK_COST_MAX


def test_what_is_refused_at_first_sight_costs_nothing() -> None:
    for noise in (b"", b"x", b"\xff" * 100, batch("x")[:40], changed(batch("one"), 21, ">h", 4), bytes(1 << 20)):
        assert check_cost(noise) == 0


@pytest.mark.parametrize("bomb", [gzip_bomb(), gzip.compress(b"") * 40_000 + gzip.compress(bytes(2 << 20))])
def test_a_bomb_costs_too_much_to_be_checked_at_once(bomb: bytes) -> None:
    assert check_cost(with_payload(changed(batch("one"), 21, ">h", Compression.GZIP), bomb)) > CHECK_COST_MAX


def test_batches_checked_in_a_thread_are_written_without_another_look() -> None:
    config = settings(max_message_bytes=64 << 20)
    sent = bytes(encode_batch([(b"k", b"v" * 1_000)] * 20_000, timestamp_ms=NOW_MS, compression=Compression.ZSTD))
    wrong_time = changed(sent, 35, ">q", 5)
    checked = check_in_thread(wrong_time + batch("last"), config, NOW_MS)
    assert isinstance(checked, CheckedBatches)
    assert checked == sent + batch("last")
    _, log = open_simulated(config)
    log.append(checked, leader_epoch=0, now_ms=NOW_MS)
    assert len(records(log)) == 20_001
    unread = CheckedBatches(poison())
    log.append(unread, leader_epoch=0, now_ms=NOW_MS)
    assert log.end_offset == 20_004


def test_a_thread_refuses_what_would_be_refused_at_once() -> None:
    with pytest.raises(InvalidRecord):
        check_in_thread(poison(), settings(), NOW_MS)
    with pytest.raises(KeyRequired):
        check_in_thread(batch("one"), COMPACTED[0], NOW_MS)
    with pytest.raises(EmptyBatch):
        check_in_thread(changed(batch("one"), 57, ">i", 0), settings(), NOW_MS)
    torn = bytearray(batch("one"))
    torn[-1] ^= 1
    with pytest.raises(CorruptBatch):
        check_in_thread(bytes(torn), settings(), NOW_MS)
    assert parse_header(torn)


# --- times


def timed(*times: int, compression: Compression = Compression.NONE) -> bytes:
    return bytes(encode_batch([(b"k", b"v", (), time) for time in times], compression=compression))


@pytest.mark.parametrize("compression", Compression)
def test_records_from_too_far_in_the_past_or_the_future_are_named_and_refused(compression: Compression) -> None:
    limits = settings(message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=500)
    sent = timed(NOW_MS, NOW_MS - 1_001, NOW_MS + 501, NOW_MS - 1_000, NOW_MS + 500, -1, compression=compression)
    error = refused(InvalidTimestamp, sent, limits)
    assert isinstance(error, InvalidTimestamp)
    assert error.indexes == [1, 2]
    with pytest.raises(InvalidTimestamp):
        check_in_thread(sent, limits, NOW_MS)


def test_by_default_a_record_may_be_as_old_as_it_likes_and_an_hour_ahead() -> None:
    _, log = open_simulated(settings())
    append(log, timed(0, -1, NOW_MS + 3_600_000))
    refused(InvalidTimestamp, timed(NOW_MS + 3_600_001))


def test_where_the_broker_sets_the_time_that_of_the_producer_does_not_matter() -> None:
    _, log = open_simulated(settings(message_timestamp_type="append", message_timestamp_before_max_ms=1))
    append(log, timed(5, NOW_MS * 2))
    assert [record.timestamp_ms for record in records(log)] == [NOW_MS, NOW_MS]


# --- compression


@pytest.mark.parametrize("sent", Compression)
@pytest.mark.parametrize("wanted", list(TopicCompression))
def test_a_batch_gets_the_compression_of_its_topic(wanted: TopicCompression, sent: Compression) -> None:
    config = settings(compression_type=wanted)
    rows = [(b"k%d" % number, b"value " * 50, (), NOW_MS + number) for number in range(100)]
    original = bytes(encode_batch(rows, compression=sent, producer_id=7, producer_epoch=1, base_sequence=3))
    _, log = open_simulated(config)
    append(log, original)
    (stored,) = runs(log)
    header = parse_header(stored)
    names: dict[int, str] = {Compression.NONE: "uncompressed", **{each: each.name.lower() for each in PACKED}}
    assert names[Compression(header.compression)] == (
        names[sent] if wanted is TopicCompression.PRODUCER else wanted.value
    )
    assert [(record.key, record.value, record.timestamp_ms) for record in records(log)] == [
        (key, value, time) for key, value, _, time in rows
    ]
    assert header[-6:] == parse_header(original)[-6:]  # times, producer and sequence are those that were sent
    assert must_recompress(original, config) == (
        wanted is not TopicCompression.PRODUCER and names[sent] != wanted.value
    )
    assert check_in_thread(original, config, NOW_MS)[16:] == stored[16:]
    (again,) = append(log, original)
    assert again == 0  # a repeat is recognised, though its bytes were not kept


@pytest.mark.parametrize(
    ("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", 1, 19)], ids=["gzip", "lz4", "zstd"]
)
def test_a_higher_level_makes_smaller_batches(codec: str, low: int, high: int) -> None:
    words = [b"%d times %d" % (number * 7919 % 100, number * 31 % 17) for number in range(3_000)]
    sent = bytes(encode_batch([(None, b" ".join(words[at : at + 30])) for at in range(0, 3_000, 30)]))
    sizes = [
        len(check_in_thread(sent, settings(**{"compression_type": codec, f"compression_{codec}_level": level}), NOW_MS))
        for level in (low, high)
    ]
    assert sizes[1] < sizes[0] < len(sent)


def test_a_batch_that_compression_makes_larger_stays_as_it_is() -> None:
    _, log = open_simulated(settings(compression_type="zstd"))
    append(log, batch("x"))
    assert parse_header(runs(log)[0]).compression == Compression.NONE


def test_a_batch_that_is_too_large_without_its_compression_is_refused() -> None:
    sent = bytes(encode_batch([(b"k", b"v" * 1_000)] * 50, timestamp_ms=NOW_MS, compression=Compression.ZSTD))
    refused(MessageTooLarge, sent, settings(compression_type="uncompressed", max_message_bytes=20_000))


def test_a_later_batch_of_another_compression_is_found_behind_one_that_fits() -> None:
    config = settings(compression_type="zstd")
    fits = bytes(encode_batch([(b"k", b"v" * 1_000)], timestamp_ms=NOW_MS, compression=Compression.ZSTD))
    assert not must_recompress(fits + fits, config)
    assert must_recompress(fits + fits + batch("x"), config)
    assert not must_recompress(fits + fits[:40], config)  # torn: refused when it is checked


def test_many_small_batches_cannot_grow_without_limit_when_their_compression_is_taken_away() -> None:
    small = bytes(encode_batch([(b"k", b"v" * 1_000_000)], timestamp_ms=NOW_MS, compression=Compression.ZSTD))
    config = settings(compression_type="uncompressed")
    assert len(check_in_thread(small * 2, config, NOW_MS)) > 2_000_000
    with pytest.raises(MessageTooLarge, match="grow"):
        check_in_thread(small * 100, config, NOW_MS)


def test_a_wrong_latest_time_is_corrected_together_with_the_compression() -> None:
    sent = changed(bytes(encode_batch([(b"k", b"v" * 500)], timestamp_ms=NOW_MS)), 35, ">q", 5)
    _, log = open_simulated(settings(compression_type="lz4"))
    append(log, sent)
    assert parse_header(runs(log)[0]).max_timestamp == NOW_MS


# --- what older versions let in


def test_a_search_by_time_passes_over_a_batch_of_noise() -> None:
    _, on_disk = open_simulated()
    logs: list[Log | MemoryLog] = [on_disk, MemoryLog("orders-0", settings())]
    for log in logs:
        append(log, batch("a", at_ms=NOW_MS))
        append_unchecked(log, poison(3, at_ms=NOW_MS + 1))
        append(log, batch("b", at_ms=NOW_MS + 2))
        found = [run_steps_here(log.find_time(NOW_MS + each)) for each in range(4)]
        assert [None if each is None else each.offset for each in found] == [0, 1, 4, None]
        latest = run_steps_here(log.find_latest_time())
        assert latest is not None
        assert latest.offset == 4


def test_a_copy_takes_what_its_leader_has() -> None:
    _, log = open_simulated()
    assert append_unchecked(log, batch("a"), poison(3), batch("b")) == [0, 1, 4]
