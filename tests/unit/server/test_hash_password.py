from __future__ import annotations

import io

import pytest

from flymq.broker.access.passwords import parse_password_hash
from flymq.server.hash_password import main


def test_a_password_piped_in_comes_out_as_a_hash_with_a_salt_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        monkeypatch.setattr("sys.stdin", io.StringIO("open sesame\n"))
        assert main() == 0
    first, second = map(parse_password_hash, capsys.readouterr().out.split())
    assert first.matches("open sesame")
    assert first.salt != second.salt


def test_an_empty_password_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main() == 2
    assert "empty" in capsys.readouterr().err
