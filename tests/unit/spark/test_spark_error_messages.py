"""FlyMQ's own errors are found again in what Spark makes of them."""

from __future__ import annotations

from flymq.model.errors import ArchiveDamaged, InvalidOption, PipelineFailed, TopicNotFound
from flymq.spark.error_messages import failure_of, first_sentence

TRACEBACK = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed:
Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise type(error)(f"...", hint="") from None
flymq.model.errors.{} SQLSTATE: 38000
    at org.apache.spark.Something(PythonRunner.scala:1097)
"""


def test_an_error_with_the_hint_of_its_kind_comes_apart_again() -> None:
    text = f"topics.TopicNotFound: there is no topic 'x' to read. {TopicNotFound.hint}\n"
    error = failure_of(RuntimeError(TRACEBACK.format(text)))
    assert isinstance(error, TopicNotFound)
    assert (error.message, error.hint) == ("there is no topic 'x' to read", TopicNotFound.hint)


def test_an_error_with_a_hint_of_its_own_keeps_it_in_its_text() -> None:
    error = failure_of(RuntimeError(TRACEBACK.format("spark.InvalidOption: there is no option 'a'. It is 'b'.\n")))
    assert isinstance(error, InvalidOption)
    assert (error.message, error.hint) == ("there is no option 'a'. It is 'b'.", "")


def test_an_error_of_ours_is_left_as_it_is() -> None:
    error = ArchiveDamaged("x")
    assert failure_of(error) is error


def test_any_other_error_is_a_failed_pipeline_with_its_first_line() -> None:
    error = failure_of(ValueError("[SOME_CONDITION.KIND] It broke. SQLSTATE: 42703;\n'Project [key#0]\n at java"))
    assert type(error) is PipelineFailed
    assert error.message == "It broke."


def test_an_exception_without_a_text_is_named_by_its_class() -> None:
    assert first_sentence(KeyError()) == "KeyError"
