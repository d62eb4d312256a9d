from __future__ import annotations

from pathlib import Path

import pytest

from flymq.server import settings_reference
from flymq.server.settings import describe_settings

REPOSITORY = Path(__file__).parents[3]


def test_the_settings_page_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert settings_reference.main(["--check"]) == 0


def test_a_page_that_lags_behind_is_noticed_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings_reference.main(["--check"]) == 1
    assert "Try: python -m flymq.server.settings_reference" in capsys.readouterr().err
    settings_reference.PAGE.parent.mkdir(parents=True)
    assert settings_reference.main([]) == 0
    assert settings_reference.main(["--check"]) == 0


def test_the_page_names_every_setting_once_and_its_variable() -> None:
    rows = [line for line in settings_reference.render().splitlines() if line.startswith("| `")]
    assert len(rows) == len(describe_settings())
    for setting in describe_settings():
        name = setting.name.removeprefix("topics.defaults.")
        (row,) = (row for row in rows if row.startswith(f"| `{name}` |"))
        assert setting.text in row
        assert setting.variable in row or name == "auth.users"


def test_defaults_are_shown_in_units_people_read() -> None:
    page = settings_reference.render()
    assert "| `604800000` (7 days) |" in page
    assert "| `1073741824` (1 GiB) |" in page
    assert "| `127.0.0.1` |" in page
    assert "| `false` |" in page
