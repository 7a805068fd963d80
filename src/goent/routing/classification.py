"""Classifies a task: its type, complexity, size, and how much it asks to be read.

The one place in this room that touches the disk; it blocks, so a daemon asks it in a thread. Every
count has an end: a time, a number of files, and a sample of each file instead of all of it.

Changes are measured by the learned sums. What is answered in words changes nothing, and what somebody
asks for in a few plain words is little unless one of them is large.

Two sets of weights are learned: from descriptions of real changes, and from tasks as people word them.
How a task is worded says how much the second set counts. Signs by hand speak for what neither has seen;
what the caller said stands above all.
"""

import fnmatch
import math
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import nlargest
from pathlib import Path
from typing import Final, Literal

from goent.billing.token_estimate import estimate_tokens
from goent.domain.task_profile import (
    COMPLEXITIES,
    TASK_TYPES,
    Classification,
    Complexity,
    TaskContext,
    TaskFeature,
    TaskText,
    TaskType,
)
from goent.domain.types import Value
from goent.routing.task_features import (
    LEARNED,
    READ,
    Columns,
    FeatureGroup,
    Sign,
    Weights,
    parts,
    prefix,
    signs,
)
from goent.routing.task_grammar import LIKELY, NOTED, REQUEST, TaskReading, read_plainly

LIMIT_S: Final = 0.25
MOST_COUNTED: Final = 5_000
MOST_NAMED: Final = 200  # names in one task
LONGEST_NAME: Final = 200  # characters
FILE_SAMPLE: Final = 8_192  # bytes of a file that are read
NAMES_READ: Final = 50_000  # characters of a prompt in which names are looked for
MOST_CHOICES: Final = 16  # in one pair of braces
SKIPPED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache"}
)

_WORD: Final = re.compile(r"[^\s\"'`()<>|;]+")
# A path has a slash, a star or an ending; what is longer than a name is not looked at.
_NAME: Final = re.compile(r"[\w.~*?\[{-][^:]*/[^:]*|/[^:]+|[^/:]*\*[^/:]*|[\w*?-][^/:]*\.\w{1,8}")
_FILE: Final = re.compile(r"[^/]*[*?\[{].*|[^/]*\.[a-z]\w{0,7}", re.IGNORECASE)
_NO_FILE: Final = re.compile(
    r"(?:e\.g|i\.e|a\.m|p\.m)|(?:node|vue|next|nuxt|react|express|three|d3|ember|backbone)\.js|asp\.net"
    r"|.*\.(?:com|org|net|io)",
    re.IGNORECASE,
)
_MAGIC: Final = re.compile(r"[*?\[{]")
_BRACE: Final = re.compile(r"\{([^{}]*)\}")


class _LimitReached(Exception):
    """A limit was reached."""


class _Count:
    """What was found so far; a file counts once, however often it is named."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._seen: set[tuple[int, int]] = set()
        self.tokens = 0

    @property
    def files(self) -> int:
        return len(self._seen)

    def add(self, path: str) -> None:
        self.check()
        try:
            about = os.stat(path)  # noqa: PTH116 (thousands of them, within a fraction of a second)
        except (OSError, ValueError):
            return
        if not stat.S_ISREG(about.st_mode) or (about.st_dev, about.st_ino) in self._seen:
            return
        if self.files >= MOST_COUNTED:
            raise _LimitReached
        self._seen.add((about.st_dev, about.st_ino))
        self.tokens += _file_tokens(path, about.st_size)

    def check(self) -> None:
        if time.monotonic() > self._deadline:
            raise _LimitReached


def count_context(task: TaskText, cwd: Path, *, limit_s: float = LIMIT_S) -> TaskContext:
    """What is not there, or cannot be read, counts nothing."""
    count = _Count(time.monotonic() + limit_s)
    names = named_paths(task)
    try:
        for name in names[:MOST_NAMED]:
            for path in _paths(name, cwd, count):
                count.add(path)
    except _LimitReached:
        return TaskContext(files=count.files, tokens=count.tokens, complete=False)
    return TaskContext(files=count.files, tokens=count.tokens, complete=len(names) <= MOST_NAMED)


def named_paths(task: TaskText) -> tuple[str, ...]:
    """The files, folders and globs that the caller listed or the text mentions, each once."""
    words = (word.lstrip("@").rstrip(".,:!?") for word in _WORD.findall(task.text[:NAMES_READ]))
    fitting = (word for word in words if 1 < len(word) <= LONGEST_NAME)
    mentioned = (word for word in fitting if _NAME.fullmatch(word))
    names = dict.fromkeys((*task.files, *mentioned))
    return tuple(name for name in names if 0 < len(name) <= LONGEST_NAME and "\0" not in name)


def count_named(task: TaskText) -> int:
    """How many files it names, there or not: `and/or`, `2.3` and `example.com` are none."""
    listed = set(task.files)
    last = {name: name.rstrip("/").rpartition("/")[2] for name in named_paths(task)}
    return sum(
        name in listed or bool(_FILE.fullmatch(end) and not _NO_FILE.fullmatch(end))
        for name, end in last.items()
    )


def _paths(name: str, cwd: Path, count: _Count) -> Iterator[str]:
    name = os.path.normpath(name)  # before a star is looked for: `*/..` has none
    whole = os.path.join(cwd, os.path.expanduser(name))  # noqa: PTH111, PTH118 (a glob is no path)
    if not _MAGIC.search(name):
        yield from _below(whole, count) if os.path.isdir(whole) else (whole,)  # noqa: PTH112 (see above)
        return
    fixed, wild = _split(os.path.normpath(whole))
    for path in _below(fixed, count):
        if any(glob_fits(glob, path[len(fixed) + 1 :].split("/")) for glob in _glob_patterns(wild)):
            yield path


def _split(glob: str) -> tuple[str, str]:
    """The folder before the first star, and the rest."""
    parts = glob.split("/")
    first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
    return "/".join(parts[:first]), "/".join(parts[first:])


@lru_cache(maxsize=64)
def _glob_patterns(glob: str) -> tuple[tuple[re.Pattern[str] | None, ...], ...]:
    """`{a,b}` is one or the other: a pattern a folder for each; None stands for `**`."""
    brace = _BRACE.search(glob)
    choices = brace[1].split(",")[:MOST_CHOICES] if brace else [""]
    before, after = (glob[: brace.start()], glob[brace.end() :]) if brace else (glob, "")
    return tuple(
        tuple(
            None if part == "**" else re.compile(fnmatch.translate(part))
            for part in f"{before}{choice}{after}".split("/")
        )
        for choice in choices
    )


def glob_fits(glob: Sequence[re.Pattern[str] | None], parts: Sequence[str]) -> bool:
    """Folder by folder. Only the last `**` is ever taken back, so the time is bounded."""
    at = past = 0
    star: tuple[int, int] | None = None
    while past < len(parts):
        pattern = glob[at] if at < len(glob) else ""
        if pattern is None:
            star = at, past
            at += 1
        elif pattern and pattern.match(parts[past]):
            at, past = at + 1, past + 1
        elif star:
            star = star[0], star[1] + 1
            at, past = star[0] + 1, star[1]
        else:
            return False
    return all(pattern is None for pattern in glob[at:])


def _below(folder: str, count: _Count) -> Iterator[str]:
    """Every file in a folder and its folders, in order; links to folders are not followed."""
    waiting = [os.path.normpath(folder)]
    while waiting:
        count.check()
        try:
            with os.scandir(waiting.pop()) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            count.check()
            if not entry.is_dir(follow_symlinks=False):
                yield entry.path
            elif entry.name not in SKIPPED:
                waiting.append(entry.path)


def _file_tokens(path: str, size: int) -> int:
    """From its beginning, in proportion; 0 for what is no text."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:  # noqa: PTH123 (a descriptor)
            sample = file.read(FILE_SAMPLE)
    except OSError:
        return 0
    if not sample or b"\0" in sample:
        return 0
    return round(estimate_tokens(sample.decode(errors="replace")) * max(size / len(sample), 1))


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
    r"|payments?|notifications?|permissions?|accounts?|back-?end|front-?end|feature(?! flags?\b)|platform|codebase"
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


class TaskExtent(Value, frozen=True, kw_only=True):
    """`files` is a guess where no number is `known`; `why` are the features that spoke for it."""

    complexity: Complexity
    size: float
    files: int
    known: int
    why: tuple[TaskFeature, ...]


class LearnedSums(Value, frozen=True, kw_only=True):
    """What was learned of the words: logs of lines and of files, and where complexities begin."""

    lines: float
    files: float
    cuts: Sequence[float]


def task_extent(
    task: TaskText,
    context: TaskContext,
    kind: TaskType,
    asked: TaskReading | None,
    measured: LearnedSums,
) -> TaskExtent:
    answers = kind not in LEARNED
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
        elif rank > MEDIUM and steps <= 0 and _is_bounded(kind, asked, task.text):
            rank = MEDIUM
    rank = min(max(rank, 0), len(COMPLEXITIES) - 1)
    told = known > 1 or (known == 1 and rank <= MEDIUM)
    return TaskExtent(
        complexity=COMPLEXITIES[rank],
        size=round(max(1.0, size), 1),
        files=known if told else max(1, guess),
        known=known,
        why=tuple(why),
    )


def known_files(task: TaskText, context: TaskContext) -> int:
    """How many files the caller named, counted in words, or meant by a folder or a glob."""
    across = max((int(n) for n in _ACROSS.findall(task.text[:READ])), default=0)
    return min(max(across, count_named(task), context.files), MOST_FILES)


def _of_answer(kind: TaskType, asked: TaskReading | None, text: str) -> int:
    """How hard it is to say something about it: of the world in a few words, or of the project."""
    read = text[:READ]
    if asked and asked.is_chat:
        return 0
    if kind == "analyze" and _few_words(read) and not _AROUND.search(read):
        return 0
    return SIMPLE + bool(_DEEP.search(read))


def _is_little(asked: TaskReading | None, text: str) -> bool:
    if asked is None or asked.kind != REQUEST or asked.manner == NOTED:
        return False
    if asked.verb in _UNDERTAKINGS and not _PIECE.search(text):
        return False
    return _few_words(text) and not _LARGE.search(text) and not _HARD.search(text)


def _is_bounded(kind: TaskType, asked: TaskReading | None, text: str) -> bool:
    """Whether a few words to somebody name nothing that would be more than medium."""
    if asked is None or asked.manner == NOTED or not _few_words(text):
        return False
    if kind in ("documentation", "format"):
        return True
    return not _LARGE.search(text) and not _HARD.search(text)


def _few_words(text: str) -> bool:
    return len(text) <= _WORDS_LOOKED_AT and len(text.split()) <= FEW_WORDS


def _steps(text: str, context: TaskContext, *, answers: bool) -> tuple[int, list[TaskFeature]]:
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
    why = [TaskFeature(name=n, of="size", weight=float(s)) for n, holds, s in reasons if holds]
    return sum(s for _, holds, s in reasons if holds), why


SIZE: Final = len(LEARNED)
FILES: Final = SIZE + 1
TOLD: Final = 5  # features that are told for the type, and for the size
SAMPLE: Final = 100_000  # characters of a prompt whose tokens are estimated; the rest in proportion
PLAINLY: Final = (0.25, 4.0, 14.0)  # what plain words count, by how they are worded
BELOW: Final = (2.0, 1.0, 0.0)  # so far below the others begin types that describe no change
DOUBT: Final = (1.0, 1.4, 4.0)  # by which sums are divided before they are a likelihood
CLEARLY: Final = 0.8  # so far a type leads
READABLE: Final = ("w:", "b:", "f:", "f2:", "l:", "m:", "o:", "vo:", "n:", "h:")
_NAMES: Final[dict[TaskType, str]] = {
    "implement": "worded like a wish for something new",
    "fix": "worded like something to fix",
    "refactor": "worded like a refactoring",
    "documentation": "worded like a wish for a document",
    "test": "worded like a wish for tests",
    "format": "worded like a wish for formatting",
    "analyze": "worded like a question",
    "review": "worded like a wish for a review",
}


def classify(
    task: TaskText, *, weights: Weights, context: TaskContext | None = None
) -> Classification:
    """`context` is what was counted on disk, if anybody has counted."""
    context = context or TaskContext()
    begun, text = prefix(task.text)
    found = parts(text)
    sums = weights.described.sums(found)
    asked = read_plainly(text)
    spoken = ([begun] if begun else []) + signs(task.text)
    plain = _plain(asked, found[1])
    worded = weights.plain.sums(plain)
    scores = _scores(sums, asked, worded)
    kind, confidence = _type(task, scores, spoken, DOUBT[asked.manner] if asked else 1.0)
    measured = LearnedSums(lines=sums[SIZE], files=sums[FILES], cuts=weights.cuts)
    much = task_extent(task, context, kind, asked, measured)
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
            *_worded(kind, asked, worded),
            *_learned(kind, asked, plain, found[0], weights),
            *much.why,
        ),
    )


def _plain(asked: TaskReading | None, pieces: FeatureGroup) -> tuple[FeatureGroup, ...]:
    if asked is None:
        return ()
    return (FeatureGroup(1 / math.sqrt(len(asked.features)), asked.features), pieces)


def _scores(
    described: Sequence[float], asked: TaskReading | None, plain: Sequence[float]
) -> dict[TaskType, float]:
    manner = NOTED if asked is None else asked.manner
    if manner == NOTED and _is_answer(plain):
        manner = LIKELY
    scores = dict.fromkeys(TASK_TYPES, -BELOW[manner])
    scores |= zip(LEARNED, described, strict=False)
    if asked:
        for kind, score in zip(TASK_TYPES, plain, strict=True):
            scores[kind] += PLAINLY[manner] * score
    return scores


def _is_answer(plain: Sequence[float]) -> bool:
    """Whether it clearly asks for what no change is described as."""
    first, second = nlargest(2, plain)
    return first - second > CLEARLY and TASK_TYPES[plain.index(first)] not in LEARNED


def _type(
    task: TaskText, scores: dict[TaskType, float], spoken: Sequence[Sign], doubt: float
) -> tuple[TaskType, float]:
    """The likeliest one, and its share among all of them."""
    if task.type:
        return task.type, 1.0
    for sign in spoken:
        scores[sign.type] += sign.weight
    best = max(scores, key=lambda kind: scores[kind])
    return best, 1 / sum(math.exp((score - scores[best]) / doubt) for score in scores.values())


def _tokens(text: str) -> int:
    if len(text) <= SAMPLE:
        return estimate_tokens(text)
    return round(estimate_tokens(text[:SAMPLE]) * len(text) / SAMPLE)


def _declared(task: TaskText) -> tuple[TaskFeature, ...]:
    said = TaskFeature(name=f"the caller says {task.type!r}", of="type", weight=1.0)
    return (said,) if task.type else ()


def _of_sign(sign: Sign) -> TaskFeature:
    return TaskFeature(name=sign.name, of="type", weight=sign.weight)


def _worded(
    kind: TaskType, asked: TaskReading | None, sums: Sequence[float]
) -> tuple[TaskFeature, ...]:
    """What the plain words say altogether, if they speak for the type."""
    score = sums[TASK_TYPES.index(kind)]
    if asked is None or score <= 0:
        return ()
    weight = round(PLAINLY[asked.manner] * score, 3)
    return (TaskFeature(name=_NAMES[kind], of="type", weight=weight),) if weight else ()


def _learned(
    kind: TaskType,
    asked: TaskReading | None,
    plain: Sequence[FeatureGroup],
    words: FeatureGroup,
    weights: Weights,
) -> Iterator[TaskFeature]:
    """The strongest for or against the type, then the size; pieces of words tell nobody much."""
    if asked and plain:
        column = TASK_TYPES.index(kind)
        yield from _strongest("type", weights.plain, column, plain[0], PLAINLY[asked.manner])
    elif kind in LEARNED:
        yield from _strongest("type", weights.described, LEARNED.index(kind), words, 1.0)
    yield from _strongest("size", weights.described, SIZE, words, 1.0)


def _strongest(
    of: Literal["type", "size"], columns: Columns, column: int, part: FeatureGroup, worth: float
) -> list[TaskFeature]:
    rows = columns.rows(name for name in part.names if name.startswith(READABLE))
    best = nlargest(TOLD, rows, key=lambda name: abs(rows[name][column]))
    worth *= part.value * columns.steps[column]
    return [
        TaskFeature(name=_words(name), of=of, weight=round(rows[name][column] * worth, 3))
        for name in best
        if rows[name][column]
    ]


def _words(feature: str) -> str:
    """`w:fix` as a person would say it."""
    kind, _, what = feature.partition(":")
    match kind:
        case "f" | "f2" | "f3":
            return f"begins with {what!r}"
        case "b":
            return f"the words {what!r}"
        case "o":
            return f"is about {what!r}"
        case "vo":
            return f"asks to {what!r}"
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
