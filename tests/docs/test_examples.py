"""What the pages show works: every Python block runs, every command line ends well."""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flymq.testing import running_broker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
_BLOCK = re.compile(r"^```(python|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)

_ADDRESS = re.compile(r"localhost:(?:8080|9092)")


def pages_with_examples() -> list[Path]:
    return [page for page in PAGES if _BLOCK.search(page.read_text())]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", pages_with_examples(), ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_in_their_order(page, flymq_broker, monkeypatch, tmp_path):
    monkeypatch.setenv("FLYMQ_BOOTSTRAP", flymq_broker.address)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CURL_HOME", str(tmp_path))
    (tmp_path / ".curlrc").write_text("fail\nsilent\nshow-error\n")  # a refused request ends the example
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    text = page.read_text()
    for block in _BLOCK.finditer(text):
        language, source = block[1], _ADDRESS.sub(flymq_broker.address, block[2])
        if language == "shell":
            subprocess.run(["bash", "-ec", source], check=True, timeout=60)
        else:
            line = text.count("\n", 0, block.start()) + 1
            code = compile("\n" * line + source, str(page), "exec")
            exec(code, names)
            run_tests(names)


def run_tests(names: dict[str, object]) -> None:
    """Call the tests a block defined, each with a broker of its own, as pytest would."""
    for name in [name for name in names if name.startswith("test_")]:
        test = names.pop(name)
        assert callable(test)
        with running_broker() as broker:
            test(**dict.fromkeys(inspect.signature(test).parameters, broker))
