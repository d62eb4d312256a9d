"""What a project of tables says when it fails."""

import pytest

from flymq.spark.declarative import last_reason


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (
            "pyspark.errors.exceptions.connect.AnalysisException: \nFailed to resolve flows in the pipeline.\n\nMore.",
            "Failed to resolve flows in the pipeline",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkException: [PIPELINE_SPEC_UNEXPECTED_FIELD] No field `x` is known.",
            "No field `x` is known",
        ),
        ("NameError: name 'sparc' is not defined", "name 'sparc' is not defined"),
        ("Killed", "the project failed"),
    ],
)
def test_the_last_thing_raised_is_told_in_one_line(raised, reason):
    before = "Traceback (most recent call last):\n  File x\nValueError: first\n\nDuring handling of this:\n  File y\n"
    assert last_reason(before * (raised != "Killed") + raised) == reason
