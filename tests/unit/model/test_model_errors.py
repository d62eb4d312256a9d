from __future__ import annotations

import inspect
import re

import pytest

from flymq.model import errors
from flymq.model.errors import FlyMQError, InvalidBatch, StorageError, all_errors

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FlyMQError)]
each_error = pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)


def test_no_two_errors_share_a_code() -> None:
    codes = [error.code for error in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all_errors() == {error.code: error for error in CLASSES}


@each_error
def test_an_error_says_what_it_is_and_what_to_do(error: type[FlyMQError]) -> None:
    assert re.fullmatch(r"[A-Z][A-Z0-9_]*", error.code)
    assert error.__doc__
    assert error.__doc__.endswith(".")
    if error is not FlyMQError:
        assert error.hint.endswith((".", "`."))
        assert "code" in vars(error), "a subclass has its own code"


@each_error
def test_an_error_without_a_message_tells_its_meaning(error: type[FlyMQError]) -> None:
    assert error().message
    assert error("this went wrong").message == "this went wrong"
    assert error("x", hint="do that").hint == "do that"
    assert str(error("x")) == "x"


def test_errors_of_a_kind_are_caught_together() -> None:
    assert issubclass(errors.DiskFull, StorageError)
    assert issubclass(errors.CorruptBatch, InvalidBatch)
    assert not errors.FsyncFailed.retriable
    assert errors.NotLeader.retriable
