"""Do the pages say what the code does?"""

import re
from pathlib import Path

import pytest

from gen_docs import PAGE, ROOT, rewritten
from goent.frontends.mcp.tools import DESCRIPTIONS

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_generated_parts_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run `.venv/bin/python scripts/gen_docs.py`"


def test_the_readme_names_every_tool_and_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\| `go-ent ([a-z]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    missing = [name for name in (*DESCRIPTIONS, *commands) if f"`{name}" not in readme]
    assert commands and not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file, _, heading = target.partition("#")
        if "://" in target:
            continue
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{page.name} links to {target!r}"
        if heading:
            assert heading in _anchors(found), f"{page.name} links to {target!r}"


def _anchors(page: Path) -> set[str]:
    """The names that a heading gets on a rendered page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
