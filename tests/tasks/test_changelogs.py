"""What the classifier's examples are made of: labelled entries, without links, numbers and names."""

from changelogs import NAMES, entries

CHANGELOG = """
# 1.2.0 (2024-01-01)
### :bug: Bug Fixes
* **core:** keep the order of events ([#12](x/12)) ([abcdef1](x/c)), closes #13
- do not fail on empty input by @somebody
- feat(api): add a second endpoint
### Tests
* cover the parser
### Contributors
* nobody in particular
"""


def test_entries_are_told_by_their_heading_or_their_own_label():
    assert list(entries(CHANGELOG)) == [
        ("fix", "keep the order of events (core)"),
        ("fix", "do not fail on empty input"),
        ("implement", "add a second endpoint (api)"),
        ("test", "cover the parser"),
    ]


def test_every_package_is_named_with_its_version():
    for name in NAMES.read_text(encoding="utf-8").split():
        registry, _, package = name.partition(":")
        assert registry in {"npm", "pypi"}
        assert package.rpartition("@")[2][0].isdigit()
