"""What fails again and again is said once, and once that it is over."""

from __future__ import annotations

import logging

import pytest

from flymq.host.failure_log import FailureLog
from flymq.model.errors import DiskFull, FileVanished


def test_a_failure_is_logged_once_for_each_thing_and_reason_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failures = FailureLog(logging.getLogger("flymq.test"), "work on %s failed")
    for _ in range(3):
        failures.failed("a", DiskFull("full"))
        failures.failed("b", DiskFull("full"))
        failures.succeeded("c")
    failures.failed("a", FileVanished("gone"))
    failures.succeeded("a")
    failures.succeeded("a")
    assert [record.getMessage() for record in caplog.records] == [
        "work on a failed: full",
        "work on b failed: full",
        "work on a failed: gone",
        "work on a failed: it works again",
    ]


def test_what_nobody_expected_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog(logging.getLogger("flymq.test"), "work on %s failed")
    failures.failed("a", ValueError("a mistake"))
    assert caplog.records[0].exc_info is not None
