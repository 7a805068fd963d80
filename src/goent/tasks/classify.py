"""What kind of task is it, how big, how hard, and what in it says so? Pure.

Weights learned from real changes give each type and the size a sum over the features of the text;
signs by hand speak for what the weights have not seen; what the caller said stands above both.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final, Literal

from goent.domain.tasks import (
    COMPLEXITIES,
    Classification,
    Complexity,
    Context,
    Feature,
    TaskText,
    TaskType,
)
from goent.llm.estimate import estimate_tokens
from goent.tasks.context import named
from goent.tasks.features import Part, parts
from goent.tasks.signs import READ, Sign, prefix, signs
from goent.tasks.weights import LEARNED, Weights

SIZE: Final = len(LEARNED)
FILES: Final = SIZE + 1
UNLEARNED: Final = -4.0  # where analyze and review begin: only a sign brings them up
TOLD: Final = 5  # features that are told for the type, and for the size
MOST_FILES: Final = 10_000
SAMPLE: Final = 100_000  # characters of a prompt whose tokens are estimated; the rest in proportion
LARGE_CONTEXT: Final = 50_000
MANY_FILES: Final = 6  # said to be touched
MANY_READ: Final = 20  # files to read
MANY_POINTS: Final = 5
STEP: Final = 0.7  # of log lines that a step of complexity is worth

_ACROSS: Final = re.compile(
    r"\b(\d{1,4})\s+(?:[a-z-]+\s+)?(?:files|modules|packages|services)\b", re.IGNORECASE
)
_MANY: Final = re.compile(
    r"\b(?:across|throughout|in all|every|whole|entire)\b.{0,40}"
    r"\b(?:code ?base|project|repo(?:sitory)?|files|modules|packages|services|app)\b",
    re.IGNORECASE,
)
_SMALL: Final = re.compile(
    r"\b(?:typos?|one[- ]line(?:r)?|trivial|tiny|misspell\w*)\b", re.IGNORECASE
)
_HARD: Final = re.compile(
    r"\b(?:concurren\w+|race conditions?|deadlocks?|distributed|architecture|redesign|from scratch"
    r"|backwards? compatib\w+|zero[- ]downtime|transaction\w*|protocol|scheduler|compiler)\b",
    re.IGNORECASE,
)
_POINT: Final = re.compile(r"^\s{0,8}(?:[-*+]|\d{1,2}[.)])\s+\S", re.MULTILINE)


def classify(task: TaskText, *, weights: Weights, context: Context | None = None) -> Classification:
    """`context` is what was counted on disk, if anybody has counted."""
    context = context or Context()
    begun, text = prefix(task.text)
    found = parts(text)
    sums = _sums(found, weights)
    spoken = ([begun] if begun else []) + signs(task.text)
    kind, confidence = _type(task, sums, spoken)
    steps, why = _steps(task.text, context)
    complexity = _complexity(sums[SIZE], steps, weights.cuts)
    return Classification(
        type=kind,
        confidence=round(confidence, 3),
        complexity=complexity,
        files=_told(task, context) or max(1, round(math.exp(min(sums[FILES], 9.0)))),
        named=max(_told(task, context), len(named(task))),
        size=round(max(1.0, math.expm1(min(sums[SIZE] + STEP * steps, 12.0))), 1),
        context_tokens=_tokens(task.text) + context.tokens,
        features=(
            *_declared(task),
            *(_of_sign(sign) for sign in spoken if sign.type == kind),
            *_learned(kind, found[0], weights),
            *why,
        ),
    )


def _sums(found: Sequence[Part], weights: Weights) -> list[float]:
    """Of each column. The values of a part are one, so only integers are added up one by one."""
    sums = list(weights.bias)
    for part in found:
        rows = weights.rows(part.names).values()
        for column, total in enumerate(map(sum, zip(*rows, strict=True))):
            sums[column] += part.value * weights.steps[column] * total
    return sums


def _type(task: TaskText, sums: Sequence[float], spoken: Sequence[Sign]) -> tuple[TaskType, float]:
    """The likeliest one, and its share among all of them."""
    if task.type:
        return task.type, 1.0
    scores: dict[TaskType, float] = dict(zip(LEARNED, sums, strict=False))
    scores |= {"analyze": UNLEARNED, "review": UNLEARNED}
    for sign in spoken:
        scores[sign.type] += sign.weight
    best = max(scores, key=lambda kind: scores[kind])
    return best, 1 / sum(math.exp(score - scores[best]) for score in scores.values())


def _steps(text: str, context: Context) -> tuple[int, list[Feature]]:
    """How many steps harder than its words look, and what says so."""
    read = text[:READ]
    across = max((int(n) for n in _ACROSS.findall(read)), default=0)
    reasons = (
        (
            "many files",
            across >= MANY_FILES or context.files > MANY_READ or bool(_MANY.search(read)),
            1,
        ),
        ("a large context", context.tokens > LARGE_CONTEXT, 1),
        ("many points", len(_POINT.findall(read)) >= MANY_POINTS, 1),
        ("a hard subject", bool(_HARD.search(read)), 1),
        ("said to be small", bool(_SMALL.search(read)), -2),
    )
    why = [Feature(name=n, of="size", weight=float(s)) for n, holds, s in reasons if holds]
    return sum(s for _, holds, s in reasons if holds), why


def _complexity(size: float, steps: int, cuts: Sequence[float]) -> Complexity:
    rank = sum(size >= cut for cut in cuts) + steps
    return COMPLEXITIES[min(max(rank, 0), len(COMPLEXITIES) - 1)]


def _told(task: TaskText, context: Context) -> int:
    """How many files the caller speaks of; else it is as many as such tasks touched."""
    across = max((int(n) for n in _ACROSS.findall(task.text[:READ])), default=0)
    return min(max(across, len(task.files), context.files), MOST_FILES)


def _tokens(text: str) -> int:
    if len(text) <= SAMPLE:
        return estimate_tokens(text)
    return round(estimate_tokens(text[:SAMPLE]) * len(text) / SAMPLE)


def _declared(task: TaskText) -> tuple[Feature, ...]:
    said = Feature(name=f"the caller says {task.type!r}", of="type", weight=1.0)
    return (said,) if task.type else ()


def _of_sign(sign: Sign) -> Feature:
    return Feature(name=sign.name, of="type", weight=sign.weight)


def _learned(kind: TaskType, words: Part, weights: Weights) -> Iterator[Feature]:
    """The strongest for or against the type, then the size; pieces of words tell nobody much."""
    rows = weights.rows(words.names)
    if kind in LEARNED:
        column = LEARNED.index(kind)
        yield from _strongest("type", column, rows, words.value * weights.steps[column])
    yield from _strongest("size", SIZE, rows, words.value * weights.steps[SIZE])


def _strongest(
    of: Literal["type", "size"], column: int, rows: Mapping[str, Sequence[int]], worth: float
) -> list[Feature]:
    best = nlargest(TOLD, rows, key=lambda name: abs(rows[name][column]))
    return [
        Feature(name=_words(name), of=of, weight=round(rows[name][column] * worth, 3))
        for name in best
        if rows[name][column]
    ]


def _words(feature: str) -> str:
    """`w:fix` as a person would say it."""
    kind, _, what = feature.partition(":")
    match kind:
        case "f" | "f2":
            return f"begins with {what!r}"
        case "l":
            return f"ends with {what!r}"
        case "m":
            return f"a form of {what!r}"
        case "n":
            return f"about {2 * int(what)} words"
        case "h":
            return f"shape: {what}"
        case _:
            return f"the word {what!r}"
