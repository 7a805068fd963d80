"""What of a task's words can be learned from? Names of features, and how much each counts.

Training and classification both read a task through here, so that they cannot drift apart. Only
the beginning is read: people say what they want first, and the time a task takes stays bounded.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from math import sqrt
from typing import Final, NamedTuple

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


class Part(NamedTuple):
    """Features that all have the same value."""

    value: float
    names: Collection[str]


def parts(text: str) -> tuple[Part, Part]:
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
        Part(1 / sqrt(len(whole)), sorted(whole)),
        Part(PIECES / sqrt(max(len(pieces), 1)), pieces),
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
    yield from (f"m:{_stem(word)}" for word in plain)
    yield f"n:{min(len(plain) // 2, 8)}"
    if plain:
        yield f"f:{plain[0]}"
        yield f"f2:{' '.join(plain[:2])}"
        yield f"l:{plain[-1]}"


def _stem(word: str) -> str:
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
