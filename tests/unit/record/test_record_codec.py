"""Which codec is in use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from flymq.record import _plain, codec

WITHOUT_THE_COMPILED_ONE = """
import sys
sys.modules["flymq.record._fast"] = None
from flymq.record import codec
from flymq.record.batch import encode_batch
from flymq.record.reading import parse_pairs
assert not codec.COMPILED
assert parse_pairs(encode_batch([(b"key", b"value")])) == [(b"key", b"value")]
"""


def test_everything_works_where_nothing_could_be_compiled() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_THE_COMPILED_ONE], check=True, timeout=60)


def test_the_compiled_codec_has_every_function_of_the_plain_one() -> None:
    compiled = pytest.importorskip("flymq.record._fast")
    assert codec.COMPILED
    for name in codec.__all__:
        if name != "COMPILED":
            assert getattr(codec, name) is getattr(compiled, name)
            assert hasattr(_plain, name)
