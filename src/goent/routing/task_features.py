"""Finds what in a task's text indicates its type: learned features and hand-written signs.

Training and classification both read a task through here, so that they cannot drift apart. Only
the beginning is read: people say what they want first, and the time a task takes stays bounded.

It holds no words: a feature is found by the checksum of its name. How it was made is in
`scripts/train_classifier.py`.

The learned weights have not seen stack traces, or a type that the author wrote in front.
"""

import re
import sys
import zlib
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from math import sqrt
from struct import Struct as Packing
from typing import Final, NamedTuple

import msgspec

from goent.domain.task_profile import TaskType
from goent.domain.types import Value

HEAD: Final = 400  # characters of a task that are read
LONGEST: Final = 24  # characters of a word; what is longer is no word
ENDINGS: Final = ("ing", "ed", "es", "s")
LEAST_STEM: Final = 4
LENGTHS: Final = (3, 4, 5)  # of the pieces of words
PIECES: Final = 0.7  # how much they count beside whole words

_TOKEN: Final = re.compile(r"[A-Za-z]+|[0-9]+|[^\sA-Za-z0-9]")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SCOPE: Final = re.compile(r"\(([^()]{1,40})\)\s{0,4}\Z")
_PLEASE: Final = re.compile(
    r"(?:(?:please|kindly|hi|hello|hey|ok|okay|now|also|just|can you|could you|would you|will you"
    r"|you should|you must|your task is to|i want you to|i need you to|i'd like you to|i want to"
    r"|we want to|we need to|we should|we have to|let's|lets|help me|todo|task)\b[\s,:!.-]{0,4})+",
    re.IGNORECASE,
)
_SHAPES: Final = tuple(
    (f"h:{name}", re.compile(pattern))
    for name, pattern in (
        ("`", r"`"),
        ("doc", r"\.(?:md|mdx|rst|txt)\b|README|CHANGELOG"),
        ("path", r"[\w-]/[\w.]|\.\w{2,4}\b"),
        ("num", r"\d"),
        ("ident", r"[a-z][A-Z]|_"),
        ("code", r"[a-z][A-Z]|_|`|\(\)"),
        ("and", r"\band\b|[,;+]"),
        ("colon", r":"),
        ("cap", r"\A[A-Z]"),
        (
            "neg",
            r"(?i:\b(?:not|no|never|don't|doesn't|without|cannot|can't|instead|only|when|if)\b)",
        ),
    )
)


class FeatureGroup(NamedTuple):
    """Features that all have the same value."""

    value: float
    names: Collection[str]


def parts(text: str) -> tuple[FeatureGroup, FeatureGroup]:
    """Whole words and shapes, in order, and pieces of words.

    The length of either part is the same, however many words there are.
    """
    body, scope = _parted(text)
    words = [word.lower() for word in _TOKEN.findall(_HUMP.sub(" ", body))]
    plain = [word[:LONGEST] for word in words if word.isalpha()]
    whole = set(_whole(words, plain))
    whole.update(f"w:{word.lower()}" for word in _TOKEN.findall(_HUMP.sub(" ", scope)))
    whole.update(name for name, shape in _SHAPES if shape.search(body))
    pieces = set(_pieces(plain))
    return (
        FeatureGroup(1 / sqrt(len(whole)), sorted(whole)),
        FeatureGroup(PIECES / sqrt(max(len(pieces), 1)), pieces),
    )


def features(text: str) -> dict[str, float]:
    """Each feature's name with its value."""
    return {name: part.value for part in parts(text) for name in part.names}


def _parted(text: str) -> tuple[str, str]:
    """What is to be done, and the part of the project in brackets behind it."""
    head = text.lstrip()[:HEAD]
    asked = _PLEASE.match(head)
    if asked and asked.end() < len(head):
        head = head[asked.end() :]
    scope = _SCOPE.search(head)
    return (head[: scope.start()].rstrip(), scope[1]) if scope else (head, "")


def _whole(words: list[str], plain: list[str]) -> Iterator[str]:
    yield from (f"w:{word[:LONGEST]}" for word in words)
    yield from (f"m:{stem(word)}" for word in plain)
    yield f"n:{min(len(plain) // 2, 8)}"
    if plain:
        yield f"f:{plain[0]}"
        yield f"f2:{' '.join(plain[:2])}"
        yield f"l:{plain[-1]}"


def stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= LEAST_STEM:
            return word[: -len(ending)]
    return word


def _pieces(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        padded = f"<{word}>"
        for length in LENGTHS:
            for start in range(len(padded) - length + 1):
                yield f"c:{padded[start : start + length]}"


LEARNED: Final[tuple[TaskType, ...]] = (
    "implement",
    "fix",
    "refactor",
    "documentation",
    "test",
    "format",
)
"""The types that descriptions of changes have."""
COLUMNS: Final = (
    8  # of descriptions: the types, log(1 + lines), log(files); of plain words: all types
)
FILE: Final = "task_weights.msgpack"
_row: Final = Packing(f"{COLUMNS}b").unpack_from


class Table(Value, frozen=True, kw_only=True):
    """A row for each feature. Column by column: a bias, and what a step of the weights is worth."""

    keys: bytes
    values: bytes
    bias: tuple[float, ...]
    steps: tuple[float, ...]


class WeightsFile(Value, frozen=True, kw_only=True):
    """The file. `cuts` are the values of log(1 + lines) where the next complexity begins."""

    described: Table
    plain: Table
    cuts: tuple[float, ...]


class Columns:
    """A table, ready to be asked."""

    def __init__(self, table: Table) -> None:
        keys = array("I")
        keys.frombytes(table.keys)
        if sys.byteorder == "big":
            keys.byteswap()
        self._begins = {key: row * COLUMNS for row, key in enumerate(keys)}
        self._values = table.values
        self._bias = table.bias
        self.steps: Sequence[float] = table.steps

    def rows(self, features: Iterable[str]) -> dict[str, Sequence[int]]:
        """In steps of each column; a feature of which nothing was learned is left out."""
        begins, values, crc32 = (
            self._begins,
            self._values,
            zlib.crc32,
        )  # asked some 400 times a task
        return {
            name: _row(values, begins[key])
            for name in features
            if (key := crc32(name.encode("utf-8", "replace"))) in begins
        }

    def sums(self, found: Iterable[FeatureGroup]) -> list[float]:
        """Of each column. The values of a part are one, so only integers are added up one by one."""
        sums = list(self._bias)
        for part in found:
            rows = self.rows(part.names).values()
            for column, total in enumerate(map(sum, zip(*rows, strict=True))):
                sums[column] += part.value * self.steps[column] * total
        return sums


class Weights:
    """A model, ready to be asked: of descriptions of changes, and of plainly worded tasks."""

    def __init__(self, model: WeightsFile) -> None:
        self.described = Columns(model.described)
        self.plain = Columns(model.plain)
        self.cuts: Sequence[float] = model.cuts


def key_of(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def load_weights() -> Weights:
    packed = files("goent.routing").joinpath(FILE).read_bytes()
    return Weights(msgspec.msgpack.decode(packed, type=WeightsFile))


PREFIXED: Final = 100  # characters in which a type may stand in front
READ: Final = 20_000  # characters in which signs are looked for
SURE: Final = 100.0
CLEAR: Final = 10.0
LIKELY: Final = 2.5
PREFIXES: Final[dict[str, TaskType]] = {
    "feat": "implement",
    "feature": "implement",
    "implement": "implement",
    "fix": "fix",
    "bugfix": "fix",
    "hotfix": "fix",
    "bug": "fix",
    "refactor": "refactor",
    "docs": "documentation",
    "doc": "documentation",
    "documentation": "documentation",
    "test": "test",
    "tests": "test",
    "style": "format",
    "lint": "format",
    "format": "format",
    "review": "review",
    "analyze": "analyze",
    "analyse": "analyze",
}

_PREFIX: Final = re.compile(
    rf"\s*({'|'.join(PREFIXES)})(\([^()\n]{{1,40}}\))?!?:\s+", re.IGNORECASE
)


class Sign(Value, frozen=True, kw_only=True):
    """Something that speaks for a type, and how loudly."""

    name: str
    type: TaskType
    weight: float


_UNTOUCHED: Final = (
    r"\b(?:do not|don't|without) (?:chang|edit|modify|touch)\w{0,4} (?:anything|any (?:files?|code)|the code|code|files)\b"
    r"|\bno (?:code )?changes\b"
)
_TRACE: Final = (
    r"Traceback \(most recent call last\)|\bpanicked at\b|^[ \t]{1,40}at [^\n]{1,200}:\d+\)?$"
    r"|^\w{0,40}(?:Error|Exception): |segmentation fault"
)
_ANYWHERE: Final = (
    (Sign(name="nothing is to be changed", type="analyze", weight=CLEAR), _UNTOUCHED),
    (Sign(name="stack trace", type="fix", weight=LIKELY), _TRACE),
)
_searches: Final = tuple(
    (sign, re.compile(pattern, re.IGNORECASE | re.MULTILINE).search) for sign, pattern in _ANYWHERE
)


def prefix(text: str) -> tuple[Sign | None, str]:
    """The type that the author wrote in front (`fix(ui): …`), and the text without it."""
    found = _PREFIX.match(text[:PREFIXED])
    if not found or found.end() == len(text):
        return None, text
    kind = PREFIXES[found[1].lower()]
    return Sign(name=f"begins with {found[1]!r}", type=kind, weight=SURE), text[found.end() :]


def signs(text: str) -> list[Sign]:
    """What is found anywhere."""
    read = text[:READ]
    return [sign for sign, search in _searches if search(read)]
