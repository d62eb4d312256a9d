"""What the pages on Kafka's frameworks show is part of the programs that tests run."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^(?:<!-- from (\S+) -->\n)?```(java|go)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block[1], block[3], id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))
    for number, block in enumerate(_BLOCK.finditer(page.read_text()))
]


@pytest.mark.parametrize(("source", "text"), BLOCKS)
def test_a_block_of_a_page_is_in_the_program_that_it_names(source, text):
    assert source is not None, "a comment above the block names the program: <!-- from tests/… -->"
    assert plain(text) in plain((ROOT / source).read_text())


def plain(text: str) -> str:
    """Without indentation, which is less on a page than inside a program."""
    return "\n".join(line.strip() for line in dedent(text).splitlines())
