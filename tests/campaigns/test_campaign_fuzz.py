"""The corpus of the fuzzers, and some mutations of it; `make fuzz` looks for more, guided by coverage."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from random import Random

import pytest
from tests.campaigns.fuzz import corpus
from tests.campaigns.fuzz.engine import Failure, fuzz, limits, minimize, mutations, try_input
from tests.campaigns.fuzz.targets import TARGETS

MUTATIONS = 500
MEMORY_BYTES_MAX = 16 << 20
"""Of what is made from an input of a few hundred bytes; a decompressed batch may have 1 MiB."""

pytestmark = [pytest.mark.slow]


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_takes_whatever_comes_and_gives_only_its_own_errors(name: str) -> None:
    known = corpus.read(name)
    for data in [b"", *known, *islice(mutations(known, Random(name)), MUTATIONS)]:
        try:
            TARGETS[name](data)
        except Exception as error:
            raise AssertionError(f"{name} breaks at {data.hex()}") from error


@pytest.mark.parametrize("name", TARGETS)
def test_a_small_input_takes_little_memory(name: str) -> None:
    TARGETS[name](b"")  # what it imports on first use is not the input's
    for data in corpus.read(name):
        tracemalloc.start()
        TARGETS[name](data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MEMORY_BYTES_MAX, f"{name} takes {peak} bytes for {data.hex()}"


def test_the_corpus_is_what_its_program_writes() -> None:
    for name, wanted in corpus.inputs().items():
        files = sorted((corpus.FOLDER / name).iterdir())
        written = [path.read_bytes() for path in files if not path.name.startswith(corpus.FOUND)]
        assert written == wanted, f"run python -m tests.campaigns.fuzz.corpus for {name}"


def test_the_fuzzer_finds_what_is_wrong_and_makes_it_small() -> None:
    def breaks(data: bytes) -> None:
        if b"\x7f" in data:
            raise KeyError("of the parser")

    count, failures = fuzz(breaks, [b"abcdefgh" * 10], seed=1, seconds=60, inputs_max=3_000)
    assert count == 3_000
    assert [failure.data for failure in failures] == [b"\x7f"]


def test_the_fuzzer_finds_what_takes_too_much_memory() -> None:
    def grows(data: bytes) -> None:
        bytearray(2 << 30 if data else 0)

    with limits():
        error = try_input(grows, b"xyz")
        assert isinstance(error, MemoryError)
        assert len(minimize(grows, Failure(b"xyz", error)).data) == 1
