"""`flymq pipeline`: what the commands take, and that the pages show commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from tests.unit.spark.archive.archives import published, written

from flymq.cli.app import app
from flymq.cli.commands.pipeline import pipeline
from flymq.cli.exit_codes import ExitCode, run
from flymq.spark.archive.archive import Archive

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "pipelines.md"
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of_the_page() -> list[str]:
    blocks = "".join(_CONSOLE.findall(PAGE.read_text())).replace("\\\n", " ")
    return [line[2:] for line in blocks.splitlines() if line.startswith("$ flymq pipeline ")]


@pytest.mark.parametrize("line", commands_of_the_page(), ids=lambda line: line[:40])
def test_a_command_that_the_page_shows_is_one(line: str) -> None:
    name, *arguments = shlex.split(line)[2:]
    command = pipeline.get_command(click.Context(pipeline), name)
    assert command is not None
    command.make_context(name, arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("archive orders", "Missing option '--to'"),
        ("archive --to x", "Missing argument 'TOPIC...'"),
        ("archive orders --to x --every soon", "'soon' is not a number with one of the units"),
        ("restore x --until -5", "It takes a time"),
        ("restore x --offsets 5", "'5' is not PARTITION:START-END"),
        ("mirror orders --source a:1 --source-set colour=red", "--source-set does not take colour for FlyMQ"),
        ("status ../etc", "there is no pipeline '../etc'"),
        ("stop nothing", "there is no pipeline 'nothing'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_wrong(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(app, ["pipeline", *arguments.split()]) in (ExitCode.WRONG_USAGE, ExitCode.FAILED)
    assert said in capsys.readouterr().err


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.create(tmp_path / "archive")
    published(made, 0, [written(made.root, 0, 60)])
    return made


def test_a_dry_run_shows_what_would_be_restored(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["restore", str(archive.root), "--offsets", "0:10-", "--to", "copy", "--dry-run"]
    assert run(app, ["pipeline", *arguments]) == ExitCode.OK
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["TOPIC", "PARTITION", "TO"]
    assert row.split() == ["orders", "0", "copy", "0", "60", "50"]


def test_verify_fails_for_an_archive_that_is_not_whole(archive: Archive, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["pipeline", "verify", str(archive.root)]) == ExitCode.OK
    path = next(archive.root.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    assert run(app, ["pipeline", "verify", str(archive.root)]) == ExitCode.FAILED
    assert f"{path} was truncated" in capsys.readouterr().err


def test_an_empty_list_says_how_to_begin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYMQ_PIPELINES", str(tmp_path))
    assert run(app, ["pipeline", "list"]) == ExitCode.OK
    assert "flymq pipeline archive" in capsys.readouterr().err
