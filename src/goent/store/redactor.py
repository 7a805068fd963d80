"""Removes keys from text that is stored: those that go-ent holds, and what looks like a common key.

It works on JSON text, so that one pass covers every field of an event. A key that a model spells out over
several deltas is not recognised.
"""

import re
from collections.abc import Callable, Collection

import msgspec

REDACTED = b"[redacted]"
SHORTEST_KEY = 12  # a shorter "key" is a placeholder such as `ollama`, which is an ordinary word

# Before the key: no letter or digit, unless it is the tail of an escape such as \n.
_START = rb"(?:(?<![A-Za-z0-9_])|(?<=\\[bfnrt]))"
_SHAPES = re.compile(
    _START
    + rb"(?:sk-(?=[\w-]*\d)[\w-]{16,}"
    + rb"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    + rb"|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{35}"
    + rb"|goent_[\w-]{32,})"
    + rb"|(?<=[Bb]earer )(?=[^\s\"]*\d)[\w.~+/=-]{16,}",
    re.ASCII,
)
_HINTS = (
    *(b"sk-", b"earer ", b"AKIA", b"ASIA", b"AIza", b"goent_", b"github_pat_"),
    *(b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
)


class Redactor:
    """Removes keys from JSON text. `secrets` returns the keys that go-ent holds now."""

    def __init__(self, secrets: Callable[[], Collection[str]]) -> None:
        self._secrets = secrets
        self._known: frozenset[str] = frozenset()
        self._exact: tuple[bytes, ...] = ()

    def refresh(self) -> None:
        """Ask which keys are held now."""
        known = frozenset(self._secrets())
        if known != self._known:
            self._known = known
            written = (msgspec.json.encode(s)[1:-1] for s in known if len(s) >= SHORTEST_KEY)
            self._exact = tuple(sorted(written, key=len, reverse=True))

    def redact(self, body: bytes) -> bytes:
        """The same text without keys; the very same object if there were none."""
        for key in self._exact:
            if key in body:
                body = body.replace(key, REDACTED)
        if any(hint in body for hint in _HINTS):
            body = _SHAPES.sub(REDACTED, body)
        return body
