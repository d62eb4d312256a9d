"""What is generated is what the generators write today."""

from pathlib import Path

import pytest
from tools import kafka_protocol_page
from tools.generate_kafka_codecs import TARGET, generate

ROOT = Path(__file__).parents[3]


def test_the_codecs_are_what_the_generator_writes(tmp_path: Path) -> None:
    generate(tmp_path)
    written = {path.name: path.read_text() for path in tmp_path.glob("*.py")}
    assert written == {path.name: path.read_text() for path in TARGET.glob("*.py")}


def test_the_page_about_the_protocol_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert kafka_protocol_page.main(["--check"]) == 0
