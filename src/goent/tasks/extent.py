"""How much a task is: its complexity, the lines that it will probably change, and how many files.

Changes are measured by the learned sums. What is answered in words changes nothing, and what somebody
asks for in a few plain words is little unless one of them is large.
"""

import math
import re
from collections.abc import Sequence
from typing import Final

from goent.domain.tasks import COMPLEXITIES, Complexity, Context, Feature, TaskText, TaskType
from goent.domain.types import Value
from goent.tasks.context import count_named
from goent.tasks.plain import CHAT, NOTED, REQUEST, Reading
from goent.tasks.signs import READ, UNLEARNED

MOST_FILES: Final = 10_000
LARGE_CONTEXT: Final = 50_000
MANY_FILES: Final = 6  # said to be touched
MANY_READ: Final = 20  # files to read
MANY_POINTS: Final = 5
STEP: Final = 0.8  # of log lines that a step of complexity is worth
FEW_WORDS: Final = 12
SIMPLE: Final = COMPLEXITIES.index("simple")
MEDIUM: Final = COMPLEXITIES.index("medium")
_WORDS_LOOKED_AT: Final = 2_000  # characters of a text whose words are counted

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
_LITTLE: Final = re.compile(
    r"\b(?:unused|comments?|(?:log|error) (?:line|message|level)s?|constants?|bump|timeouts?|colou?rs?"
    r"|titles?|labels?|icons?|buttons?|tooltips?|placeholders?|badges?|links?|imports?|null|undefined"
    r"|crash(?:es)?|whitespace|spelling|spelled|wording|version (?:number|to)|missing|sort)\b",
    re.IGNORECASE,
)
_MUCH: Final = re.compile(r"\b(?:migrat\w+|redesign|rewrite|overhaul|rebuild)\b", re.IGNORECASE)
_POINT: Final = re.compile(r"^\s{0,8}(?:[-*+]|\d{1,2}[.)])\s+\S", re.MULTILINE)


_LARGE: Final = re.compile(
    r"\b(?:systems?|services?|servers?|engine|framework|pipeline|dashboard|apps?|applications?|website"
    r"|plug-?ins?|integrat\w+|auth\w*|o-?auth\d?|sso|databases?|migrat\w+|apis?|endpoints?|support|game"
    r"|editor|cli|library|sdk|architecture|redesign\w*|rewrite|overhaul|rebuild|everywhere|all|every|each"
    r"|entire|whole|across|throughout|modules?|packages?|compiler|parsers?|scheduler|search|workflow|ci"
    r"|payments?|notifications?|permissions?|accounts?|back-?end|front-?end|feature|platform|codebase"
    r"|real[- ]?time|offline|encrypt\w*|upload\w*|export\w*|import\w* (?:from|of)|sync\w*|port)\b",
    re.IGNORECASE,
)
_UNDERTAKINGS: Final = frozenset(
    [
        "build",
        "consolidate",
        "convert",
        "create",
        "decompose",
        "decouple",
        "design",
        "develop",
        "encapsulate",
        "extract",
        "generate",
        "implement",
        "integrate",
        "introduce",
        "isolate",
        "merge",
        "migrate",
        "modernise",
        "modernize",
        "modularise",
        "modularize",
        "optimise",
        "optimize",
        "port",
        "prepare",
        "rebuild",
        "redo",
        "refactor",
        "reorganise",
        "reorganize",
        "restructure",
        "rework",
        "rewrite",
        "scaffold",
        "separate",
        "split",
        "streamline",
        "support",
        "test",
        "transform",
        "unify",
        "untangle",
        "write",
    ]
)
_PIECE: Final = re.compile(
    r"\b(?:an?|the|this|that|one) (?:\w+ )?(?:lines?|words?|comments?|variables?|parameters?|arguments?|constants?"
    r"|functions?|methods?|helpers?|enum|file|folder|field|regex|one-?liner|loop|condition|if)\b",
    re.IGNORECASE,
)
_DEEP: Final = re.compile(
    r"\b(?:architecture|design|strategy|root cause|investigate|diagnose|security|performance|bottlenecks?"
    r"|slow|trade-?offs?|in depth|in detail|detailed|thorough\w*|entire|whole|codebase|migrat\w+|propose"
    r"|plan|memory leak|deadlocks?|race conditions?|memory usage)\b",
    re.IGNORECASE,
)


_AROUND: Final = re.compile(  # whoever says these has something in mind that is to be read
    r"\b(?:this|these|those|our|my|we|us|it|code|project|repo\w*)\b|[\w-]+/[\w.-]+|\w\.[a-z]{1,4}\b"
    r"|\bthe (?!differences?|best|most|main|same|meaning|purpose|point|capital|result|sum|square|weather"
    r"|time|date|advantages?|concept|usual)\w",
    re.IGNORECASE,
)


class Extent(Value, frozen=True, kw_only=True):
    """`files` is a guess where no number is `known`; `why` are the features that spoke for it."""

    complexity: Complexity
    size: float
    files: int
    known: int
    why: tuple[Feature, ...]


class Measured(Value, frozen=True, kw_only=True):
    """What was learned of the words: logs of lines and of files, and where complexities begin."""

    lines: float
    files: float
    cuts: Sequence[float]


def extent(
    task: TaskText, context: Context, kind: TaskType, asked: Reading | None, measured: Measured
) -> Extent:
    answers = kind in UNLEARNED
    steps, why = _steps(task.text, context, answers=answers)
    known = known_files(task, context)
    if answers:
        rank, size, guess = _of_answer(kind, asked, task.text) + steps, 1.0, 1
    else:
        rank = sum(measured.lines >= cut for cut in measured.cuts) + steps
        size = math.expm1(min(measured.lines + STEP * steps, 12.0))
        guess = round(math.exp(min(measured.files, 9.0)))
        if rank > SIMPLE and steps <= 0 and _is_little(asked, task.text):
            rank, size, guess = SIMPLE, min(size, math.expm1(measured.cuts[SIMPLE])), 1
    rank = min(max(rank, 0), len(COMPLEXITIES) - 1)
    told = known > 1 or (known == 1 and rank <= MEDIUM)
    return Extent(
        complexity=COMPLEXITIES[rank],
        size=round(max(1.0, size), 1),
        files=known if told else max(1, guess),
        known=known,
        why=tuple(why),
    )


def known_files(task: TaskText, context: Context) -> int:
    """How many files the caller named, counted in words, or meant by a folder or a glob."""
    across = max((int(n) for n in _ACROSS.findall(task.text[:READ])), default=0)
    return min(max(across, count_named(task), context.files), MOST_FILES)


def _of_answer(kind: TaskType, asked: Reading | None, text: str) -> int:
    """How hard it is to say something about it: of the world in a few words, or of the project."""
    read = text[:READ]
    if asked and asked.rank == CHAT:
        return 0
    if kind == "analyze" and _few_words(read) and not _AROUND.search(read):
        return 0
    return SIMPLE + bool(_DEEP.search(read))


def _is_little(asked: Reading | None, text: str) -> bool:
    if asked is None or asked.rank != REQUEST or asked.manner == NOTED:
        return False
    if asked.verb in _UNDERTAKINGS and not _PIECE.search(text):
        return False
    return _few_words(text) and not _LARGE.search(text) and not _HARD.search(text)


def _few_words(text: str) -> bool:
    return len(text) <= _WORDS_LOOKED_AT and len(text.split()) <= FEW_WORDS


def _steps(text: str, context: Context, *, answers: bool) -> tuple[int, list[Feature]]:
    """How many steps harder than its words look, and what says so.

    Of what only `answers`, no word tells how much there is to change.
    """
    read = text[:READ]
    across = max((int(n) for n in _ACROSS.findall(read)), default=0)
    amounts = (
        (
            "many files",
            across >= MANY_FILES or context.files > MANY_READ or bool(_MANY.search(read)),
            1,
        ),
        ("a large context", context.tokens > LARGE_CONTEXT, 1),
        ("many points", len(_POINT.findall(read)) >= MANY_POINTS, 1),
    )
    changes = (
        ("a hard subject", bool(_HARD.search(read)), 1),
        ("much to do", bool(_MUCH.search(read)), 1),
        ("a small thing", bool(_LITTLE.search(read)), -1),
        ("said to be small", bool(_SMALL.search(read)), -2),
    )
    reasons = amounts if answers else (*amounts, *changes)
    why = [Feature(name=n, of="size", weight=float(s)) for n, holds, s in reasons if holds]
    return sum(s for _, holds, s in reasons if holds), why
