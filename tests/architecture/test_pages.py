"""The pages of the documentation hang together."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
_LINK = re.compile(r"\[[^\]]+\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    missing = [target for target in _LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert missing == []


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = set(_LINK.findall((folder / "README.md").read_text()))
    assert listed == {page.name for page in folder.glob("0*.md")}


def test_every_folder_of_the_source_is_on_the_map():
    tour = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "src" / "flymq").glob("*/__init__.py")}
    missing = {room for room in rooms if f"\n{room}/" not in tour}
    assert missing == set()
