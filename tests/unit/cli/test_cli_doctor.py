import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flymq.cli.commands import doctor
from flymq.cli.commands.doctor import (
    Status,
    check_broker,
    check_clock,
    check_codec,
    check_disk,
    check_open_files,
    check_python,
    check_spark,
)
from flymq.model.errors import SparkMissing
from flymq.record.codec import COMPILED
from flymq.spark import session


def test_a_clock_from_before_flymq_is_a_fault() -> None:
    assert check_clock(0.0).status is Status.FAIL
    assert check_clock(1_800_000_000.0).status is not Status.FAIL


@pytest.mark.parametrize(
    ("limit", "status"),
    [(256, Status.FAIL), (4_096, Status.WARN), (1 << 20, Status.OK), (resource.RLIM_INFINITY, Status.OK)],
)
def test_few_open_files_are_named(limit: int, status: Status) -> None:
    assert check_open_files(limit).status is status


def test_the_disk_is_tried_and_nothing_is_left_behind(tmp_path: Path) -> None:
    space, fsync = check_disk(tmp_path / "not" / "there" / "yet")
    assert str(tmp_path) in space.text
    assert fsync.text.endswith(" ms")
    assert list(tmp_path.iterdir()) == []


def test_the_interpreter_that_runs_this_will_do() -> None:
    assert check_python().status is Status.OK
    assert check_codec().status is (Status.OK if COMPILED else Status.WARN)


def test_no_broker_is_a_fault_only_where_one_was_named() -> None:
    with socket.socket() as free:  # bound but not listening: nobody answers here, and nobody else takes it
        free.bind(("127.0.0.1", 0))
        address = ("127.0.0.1", free.getsockname()[1])
        assert check_broker(address, {}, is_expected=True).status is Status.FAIL
        assert check_broker(address, {}, is_expected=False).status is Status.OK


def test_another_program_on_the_port_is_told_from_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        finding = check_broker(silent.getsockname(), {"request_timeout_ms": 50}, is_expected=False)
    assert finding.status is Status.FAIL
    assert "is not a FlyMQ broker" in finding.text


def test_spark_could_start_here_and_looking_does_not_load_it() -> None:
    program = (
        "import sys; from flymq.cli.commands.doctor import check_spark\n"
        "print(check_spark()); print('pyspark' in sys.modules)"
    )
    found, loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.splitlines()
    assert "PySpark" in found and "Java" in found and "FAIL" not in found
    assert loaded == "False"


def test_a_machine_without_spark_is_well_and_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_missing() -> str:
        raise SparkMissing

    monkeypatch.setattr(doctor, "spark_version", is_missing)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    (finding,) = check_spark()
    assert finding.status is Status.OK
    assert "flymq[spark]" in finding.advice


def test_a_spark_of_another_version_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "version", lambda name: "3.5.1")
    finding, *_ = check_spark()
    assert finding.status is Status.FAIL
    assert "3.5.1" in finding.text


def test_spark_without_its_companions_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "pandas" else name)
    finding, *_ = check_spark()
    assert finding.status is Status.FAIL
    assert "without pandas" in finding.text


def test_a_machine_without_bash_is_told(tmp_path: Path) -> None:
    *_, finding = check_spark({"PATH": "", "HOME": str(tmp_path)})
    assert (finding.what, finding.status) == ("bash", Status.FAIL)
