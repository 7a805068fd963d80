"""What kind of task is it, how big, how hard, and what in it says so? Pure.

Weights learned from real changes give each type and the size a sum over the features of the text;
signs by hand speak for what the weights have not seen; what the caller said stands above both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from heapq import nlargest
from typing import Final, Literal

from goent.domain.tasks import (
    Classification,
    Context,
    Feature,
    TaskText,
    TaskType,
)
from goent.llm.estimate import estimate_tokens
from goent.tasks.extent import Measured, extent
from goent.tasks.features import Part, parts
from goent.tasks.plain import read_plainly
from goent.tasks.signs import BELOW, UNLEARNED, Sign, prefix, signs
from goent.tasks.weights import LEARNED, Weights

SIZE: Final = len(LEARNED)
FILES: Final = SIZE + 1
TOLD: Final = 5  # features that are told for the type, and for the size
SAMPLE: Final = 100_000  # characters of a prompt whose tokens are estimated; the rest in proportion


def classify(task: TaskText, *, weights: Weights, context: Context | None = None) -> Classification:
    """`context` is what was counted on disk, if anybody has counted."""
    context = context or Context()
    begun, text = prefix(task.text)
    found = parts(text)
    sums = _sums(found, weights)
    asked = read_plainly(text)
    spoken = ([begun] if begun else []) + signs(task.text, asked)
    kind, confidence = _type(task, sums, spoken)
    measured = Measured(lines=sums[SIZE], files=sums[FILES], cuts=weights.cuts)
    much = extent(task, context, kind, asked, measured)
    return Classification(
        type=kind,
        confidence=round(confidence, 3),
        complexity=much.complexity,
        files=much.files,
        named=much.known,
        size=much.size,
        context_tokens=_tokens(task.text) + context.tokens,
        features=(
            *_declared(task),
            *(_of_sign(sign) for sign in spoken if sign.type == kind),
            *_learned(kind, found[0], weights),
            *much.why,
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
    scores |= dict.fromkeys(UNLEARNED, -BELOW)  # only a sign brings them up
    for sign in spoken:
        scores[sign.type] += sign.weight
    best = max(scores, key=lambda kind: scores[kind])
    return best, 1 / sum(math.exp(score - scores[best]) for score in scores.values())


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
