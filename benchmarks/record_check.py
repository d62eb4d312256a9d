"""What the check of records costs an append: batches admitted with it, beside batches that are taken as checked.

    python -m benchmarks.record_check [--quick] [--json FILE]

Records have a key and a value of 100 bytes of JSON. Both ways alternate within each round; the median of the rounds is
reported, in µs of one core per batch. The sizes are those before compression.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.record_codec import entries
from benchmarks.row import Row, row, show
from flymq.model.topic_config import TopicConfig
from flymq.record.batch import encode_batch
from flymq.record.compression import Compression
from flymq.storage.batch_validation import CHECK_COST_MAX, CheckedBatches, admit, check_cost, check_in_thread
from flymq.storage.producers.producer_state import Producers

UNIT = "µs/batch"
NOW_MS = 1_700_000_000_000
CONFIG = TopicConfig().with_changes({"max.message.bytes": 64 << 20})
SIZES = {"16 KB": 16_000, "1 MB": 1_000_000}


def batch_of(size: int, compression: Compression) -> bytes:
    """Return a batch of so many bytes before compression."""
    some = entries([])
    records = (some * (size // 118_000 + 1))[: size // 118]
    return bytes(encode_batch(records, compression=compression))


def admitted(batches: bytes) -> Callable[[], object]:
    producers = Producers()
    return lambda: admit(batches, next_offset=0, leader_epoch=0, producers=producers, config=CONFIG, now_ms=NOW_MS)


def medians(functions: dict[str, Callable[[], object]], rounds: int, round_s: float) -> dict[str, float]:
    """Return the median time of each function in µs; each round runs them all, one after another."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            repeats, started = 0, time.process_time()
            elapsed_s = 0.0
            while not repeats or elapsed_s < round_s:
                function()
                repeats += 1
                elapsed_s = time.process_time() - started
            times[name].append(1e6 * elapsed_s / repeats)
    return {name: median(found) for name, found in times.items()}


def run(quick: bool = False) -> list[Row]:
    """Return a row for each size and codec: with the check, beside without."""
    batches = {
        f"{size}, {compression.name.lower()}": batch_of(SIZES[size], compression)
        for size in SIZES
        for compression in Compression
    }
    functions: dict[str, Callable[[], object]] = {}
    for name, batch in batches.items():
        functions[f"with {name}"] = admitted(batch)
        functions[f"without {name}"] = admitted(CheckedBatches(batch))
        functions[f"decide {name}"] = lambda batch=batch: check_cost(batch)  # type: ignore[misc]
    times = medians(functions, rounds=3 if quick else 15, round_s=0.005 if quick else 0.02)
    rows = []
    for name, batch in batches.items():
        where = "in a thread" if check_cost(batch) > CHECK_COST_MAX else "at once"
        with_check = times[f"with {name}"] + times[f"decide {name}"]
        title = f"admit {name} ({len(batch) >> 10} KB), {where}"
        rows.append(row(title, with_check, UNIT, peer="without check", peer_value=times[f"without {name}"]))
    return rows


def worst_case() -> float:
    """Return how long the largest check takes that is done at once, in ms: 4 MiB of the smallest records."""
    batch = bytes(encode_batch([(None, None)] * 465_000))
    assert check_cost(batch) <= CHECK_COST_MAX
    return medians({"": lambda: check_in_thread(batch, CONFIG, NOW_MS)}, rounds=5, round_s=0.0)[""] / 1e3


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="fewer rounds")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    chosen = arguments.parse_args()
    rows = run(chosen.quick)
    print(show(rows))
    print(f"the largest batch that is checked at once: {worst_case():.1f} ms")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
