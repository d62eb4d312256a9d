import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flymq.cli.app import COMMANDS, app
from flymq.cli.exit_codes import ExitCode, run
from flymq.cli.reference import PAGE, render

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_command_says_of_itself(name: str) -> None:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").splitlines()[0] == COMMANDS[name]


def test_the_reference_page_is_up_to_date() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(), "python -m flymq.cli.reference writes it"


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, []) == ExitCode.OK
    assert "flymq server start --dev" in capsys.readouterr().out


def test_a_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["topik", "list"]) == ExitCode.WRONG_USAGE
    assert "Did you mean 'topic'?" in capsys.readouterr().err


def test_help_loads_neither_the_sdk_nor_the_broker() -> None:
    program = (
        "import sys; sys.argv[1:] = ['--help']; import flymq.cli\ntry: flymq.cli.main()\nexcept SystemExit: pass\n"
    )
    program += "print([m for m in sys.modules if m.startswith(('flymq.client', 'flymq.server', 'flymq.broker'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("flymq to", "topic"), ("flymq topic add", "add-partitions"), ("flymq server start --d", "--dev")],
)
def test_a_shell_gets_its_completions(words: str, expected: str) -> None:
    asked = {"_FLYMQ_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "flymq"], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    assert f"plain,{expected}" in done.stdout.splitlines()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["completion", shell]) == ExitCode.OK
    assert f"_FLYMQ_COMPLETE={shell}_complete" in capsys.readouterr().out
