"""Do the pages say what the code does?"""

import re
from pathlib import Path

import pytest

from gen_docs import PAGE, ROOT, rewritten
from goent.evals.files.suite_validation import validate

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_generated_parts_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert rewritten(page) == page, "run `.venv/bin/python scripts/gen_docs.py`"


def test_what_is_hidden_in_the_help_is_not_in_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "`--dry-run`" in page
    assert "--attended" not in page


def test_the_readme_is_short_and_shows_a_picture() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.split()) < 800
    assert re.search(r"!\[.+\]\(docs/images/demo\.svg\)", readme)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_is_named_is_there(page: Path) -> None:
    named = re.findall(r"`((?:tests/\S+/)?test_\w+\.py)`", page.read_text(encoding="utf-8"))
    missing = [
        name for name in named if not list(ROOT.glob(f"tests/**/{name.rpartition('tests/')[2]}"))
    ]
    assert not missing


BLOCKS = [
    block
    for page in sorted(ROOT.glob("docs/evals*.md"))
    for block in re.findall(
        r"^```yaml\n(.+?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
]
SUITES = [block for block in BLOCKS if re.search(r"^(tests|evalcases):", block, re.MULTILINE)]


@pytest.mark.parametrize("suite", SUITES)
def test_every_suite_in_the_pages_on_evaluations_is_valid(suite: str, tmp_path: Path) -> None:
    """With what each of them says lies beside it."""
    (tmp_path / "sample").mkdir()
    (tmp_path / ".goent" / "templates").mkdir(parents=True)
    (tmp_path / ".goent/templates/polite.yaml").write_text(
        "assertions: [{type: contains, value: please}]"
    )
    names = ("coder", "glm", "kimi", "strict")
    targets = ", ".join(f"{{name: {name}, provider: mock, response: ok}}" for name in names)
    (tmp_path / ".goent/targets.yaml").write_text(f"targets: [{targets}]")
    (tmp_path / "page.eval.yaml").write_text(suite, encoding="utf-8")

    checked = validate([tmp_path / "page.eval.yaml"], {})

    assert checked.cases and not checked.mistakes


def test_the_pages_on_evaluations_have_suites() -> None:
    assert len(SUITES) >= 5


def _anchors(page: Path) -> set[str]:
    """The names that a heading gets on a rendered page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
