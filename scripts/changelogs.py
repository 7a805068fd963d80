"""Which changelogs did the classifier learn from, and what do they say? They are fetched, never kept.

Projects that sort their changes by kind have labelled them, and changelogs come with packages.
`classifier_changelogs.txt` names the packages; the registries are those that npm and pip use here.
"""

import io
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path

NAMES = Path(__file__).with_name("classifier_changelogs.txt")
TIMEOUT_S = 60
FETCHERS = 4
SHORTEST, LONGEST = 8, 250
LONGEST_SCOPE = 29
HEADINGS = {
    "fix": ("bug fixes", "bug fix", "bugfixes", "fixes", "fixed", "fix", "bugs"),
    "implement": ("features", "new features", "feature", "feat", "added", "enhancements"),
    "documentation": ("documentation", "docs", "documentation changes", "doc"),
    "refactor": ("code refactoring", "refactoring", "refactor", "refactors", "refactored"),
    "format": ("styles", "style", "styling", "code style", "formatting", "lint", "linting"),
    "test": ("tests", "test", "testing", "test cases"),
}
KINDS = {heading: kind for kind, headings in HEADINGS.items() for heading in headings}
PREFIXES = {
    "feat": "implement",
    "fix": "fix",
    "doc": "documentation",
    "docs": "documentation",
    "refactor": "refactor",
    "style": "format",
    "test": "test",
    "tests": "test",
}

_CHANGELOG = re.compile(r"[^/]+/(?:docs/)?(?:CHANGELOG|HISTORY|CHANGES)\.md", re.IGNORECASE)
_HEADING = re.compile(r"#{2,5}\s+(.*?)\s*:?\s*#*|\*\*(.+?)\*\*:?\s*")
_ORNAMENT = re.compile(r":[a-z_]+:|[^\w\s&/-]+")
_ITEM = re.compile(r"\s{0,3}[*+-]\s+(?:\[[0-9a-f`]{7,}\]\([^)]*\)\s*-?\s*)?(.*)")
_SCOPE = re.compile(r"(?:\*\*|__|\*\()([^*_]+?)\)?:?(?:\*\*|__|\*)[: ]\s*(.*)")
_PREFIX = re.compile(
    r"(feat|fix|docs?|refactor|style|tests?)(?:\(([^)]*)\))?!?:\s*(.+)", re.IGNORECASE
)
_NOISE = tuple(
    (re.compile(pattern, re.IGNORECASE), left)
    for pattern, left in (
        (r"\[([^\]]*)\]\([^)]*\)", r"\1"),
        (r"\(?\b(?:closes?|closed|fixes|fixed|resolves?|refs?|see|thanks|by)\b:?\s*#?\d+.*$", ""),
        (r",?\s*(?:closes?|fixes|refs?)\s+(?:\S*#\d+[, ]*)+", ""),
        (r"https?:\S+", ""),
        (r"[(\[]?\b[0-9a-f]{7,40}\b[)\]]?", ""),
        (r"[(\[]?\S*#\d+[)\]]?", ""),
        (r"\(\s*[,;]?\s*\)", ""),
        (r"\s*(?:by|thanks|-)?\s*@[\w-]+.*$", ""),
        (r"\s+", " "),
    )
)


def entries(changelog: str) -> Iterator[tuple[str, str]]:
    """Each labelled change: its kind, and its words without numbers, links and names."""
    kind = None
    for line in changelog.splitlines():
        if heading := _HEADING.fullmatch(line):
            words = _ORNAMENT.sub("", heading[1] or heading[2] or "").strip().lower()
            kind = KINDS.get(words)
        elif (item := _ITEM.match(line)) and (entry := _entry(item[1], kind)):
            yield entry


def _entry(text: str, kind: str | None) -> tuple[str, str] | None:
    scope = ""
    if scoped := _SCOPE.fullmatch(text):
        scope, text = scoped[1].strip(" :()"), scoped[2]
    for noise, left in _NOISE:
        text = noise.sub(left, text)
    text = text.strip(" -,;")
    if labelled := _PREFIX.fullmatch(text):
        kind, text = PREFIXES[labelled[1].lower()], labelled[3]
        scope = scope or labelled[2] or ""
    if kind is None or not SHORTEST <= len(text) <= LONGEST or not text.isascii():
        return None
    return kind, f"{text} ({scope})" if 0 < len(scope) <= LONGEST_SCOPE and scope != "*" else text


def fetch(folder: Path) -> None:
    """All of them into the folder; one that cannot be had is named on stderr and left out."""
    folder.mkdir(parents=True, exist_ok=True)
    names = NAMES.read_text(encoding="utf-8").split()
    with ThreadPoolExecutor(FETCHERS) as pool:
        for name, problem in zip(names, pool.map(_fetched, names, repeat(folder)), strict=True):
            if problem:
                sys.stderr.write(f"{name}: {problem}\n")


def _fetched(name: str, folder: Path) -> str:
    """`npm:package@version` or `pypi:package@version`; what went wrong, if anything did."""
    path = folder / (name.replace("/", "__").replace(":", "-") + ".md")
    if path.exists():
        return ""
    registry, _, package = name.partition(":")
    package, _, version = package.rpartition("@")
    try:
        found = (_npm if registry == "npm" else _pypi)(package, version)
    except (OSError, LookupError, StopIteration, tarfile.TarError) as error:
        return str(error) or type(error).__name__
    path.write_bytes(found)
    return ""


def _npm(package: str, version: str) -> bytes:
    file = f"{package.rpartition('/')[2]}-{version}.tgz"
    return _changelog(_got(f"{_npm_registry()}/{package}/-/{file}"))


@cache
def _npm_registry() -> str:
    command = ["npm", "config", "get", "registry"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return told.stdout.strip().rstrip("/")


def _pypi(package: str, version: str) -> bytes:
    from pip._internal.models.index import PyPI  # noqa: PLC0415 (pip knows where its index is)

    page = f"{PyPI.simple_url}/{package}/"
    links = re.findall(r'href="([^"#]+)', _got(page).decode())
    link = next(link for link in links if link.endswith(f"-{version}.tar.gz"))
    return _changelog(_got(urllib.parse.urljoin(page, link)))


def _got(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        return answer.read()


def _changelog(package: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for member in archive:
            file = archive.extractfile(member) if _CHANGELOG.fullmatch(member.name) else None
            if file:
                return file.read()
    raise LookupError("it has no changelog")


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
