import click
import pytest

from flymq.cli.exit_codes import MEANINGS, ExitCode, run
from flymq.model.errors import BrokerUnavailable, ConnectionLost, FlyMQError, InvalidSetting, TopicNotFound


def failing(error: BaseException) -> click.Command:
    @click.command()
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("there is no topic 'x'"), ExitCode.FAILED),
        (InvalidSetting("acks takes …"), ExitCode.WRONG_USAGE),
        (BrokerUnavailable("no broker at x:1"), ExitCode.UNREACHABLE),
        (ConnectionLost("gone"), ExitCode.UNREACHABLE),
    ],
)
def test_an_expected_error_is_two_lines_on_stderr(
    error: FlyMQError, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(failing(error), []) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"flymq: {error.message}\nTry: {error.hint}\n"


def test_what_the_system_refuses_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(PermissionError(13, "Permission denied", "/secret")), []) == ExitCode.FAILED
    assert capsys.readouterr().err == "flymq: /secret: Permission denied\n"


def test_an_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(KeyboardInterrupt()), []) == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_a_bug_is_not_swallowed() -> None:
    with pytest.raises(ZeroDivisionError):
        run(failing(ZeroDivisionError()), [])


def test_wrong_usage_points_to_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(failing(AssertionError()), ["--colour"]) == ExitCode.WRONG_USAGE
    assert capsys.readouterr().err.splitlines()[1] == "Try: flymq --help"


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(ExitCode)
