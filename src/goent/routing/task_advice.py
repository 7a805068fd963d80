"""Decides whether a task needs tools or asks for edits, and advises on delegating and splitting."""

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from goent.domain.task_profile import MIN_CONFIDENCE, Classification, Forecast, TaskType
from goent.domain.types import Method

TALK_TYPES: Final[frozenset[TaskType]] = frozenset({"analyze", "review", "documentation"})
EDIT_TYPES: Final[frozenset[TaskType]] = frozenset(
    {"implement", "fix", "refactor", "documentation", "test", "format"}
)

_QUESTION: Final = re.compile(
    r"\?\s*$|^\s*(?:what|why|how|when|which|who|where|is|are|does|do(?!\s+(?:it|this|that|so)\b)|can|could|should|would"
    r"|explain|describe|compare|summari[sz]e|tell me|translate)\b",
    re.IGNORECASE,
)
_LOOK_VERB: Final = re.compile(
    r"\s*(?:please\s+)?(?:review|check|find|list|look|show|read|count|search|inspect|examine|audit"
    r"|analy[sz]e|investigate|assess|evaluate|critique|report|give me|say|hello|hi|thanks?)\b",
    re.IGNORECASE,
)
# These refer to something on disk, which only a worker with tools can open.
_PROJECT_WORD: Final = re.compile(
    r"\b(?:this|these|those|repo(?:sitory)?|code ?base|here|our|my|we|us|it)\b"
    r"|\bthe (?!differences?|best|most|main|same|meaning|purpose|point|advantages?|concept|usual)\w"
    r"|(?<![\w-])[\w-]+/[\w./-]|\b\w+\.(?:py|js|ts|tsx|go|rs|java|c|h|cpp|rb|md|toml|ya?ml|json|sh|sql)\b",
    re.IGNORECASE,
)
_CHANGE_VERB: Final = re.compile(
    r"\b(?:write|add|create|change|edit|update|rename|move|delete|remove|fix|refactor|implement"
    r"|replace|commit|run|install)\b",
    re.IGNORECASE,
)
# Only at the beginning of a task: later ones may be conditions or descriptions.
_EDIT_VERB: Final = re.compile(
    r"\s*(?:(?:feat|fix|bugfix|refactor|docs?|tests?|style|lint|format)(?:\([^()\n]{1,40}\))?!?:\s"
    r"|(?:(?:please|now|just|then)[\s,]{1,3}){0,3}"
    r"(?:fix|implement|refactor|add|remove|delete|rename|replace|update|edit|change|move|extract"
    r"|split|introduce|document|format|reformat|lint|bump|upgrade|migrate|(?P<makes>write|create))"
    r"\b(?!\s+(?:me|us|nothing|up)\b))",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile("```.*?(?:```|\\Z)", re.DOTALL)
_FILE_NAME: Final = re.compile(
    r"(?<![\w-])[\w.-]+/(?:[\w.-]+/|[\w-]*\.\w)|\b(?:readme|changelog|makefile)\b"
    r"|\b\w+\.(?:py|js|ts|tsx|css|html|go|rs|java|c|h|cpp|rb|md|txt|toml|ya?ml|json|sh|sql)\b",
    re.IGNORECASE,
)
_OF_PROJECT: Final = re.compile(
    r"\b(?:repo(?:sitory)?|code ?base|our|my)\b"
    r"|\bthe (?!following|differences?|best|most|main|same|meaning|purpose|point|concept|usual)\w",
    re.IGNORECASE,
)
_NO_EDITS: Final = re.compile(
    r"\b(?:do not|don't|without) (?:actually )?(?:chang|edit|modify|touch|writ)\w{0,4} "
    r"(?:any|the code|the files|code|files|it\b|to disk)"
    r"|\b(?:change|edit|modify|touch) nothing\b|\bno (?:code |file )?(?:changes|edits)\b|\bdry[ -]run\b"
    r"|\b(?:just|only) (?:say|tell|answer|reply|suggest|propose|plan|show|print)\b"
    r"|\b(?:answer|reply|respond) (?:with|in|by|only)\b",
    re.IGNORECASE,
)
MAX_TEXT: Final = 20_000  # characters that are examined
FEW_LINES: Final = 10
MIN_SHARED_FILES: Final = 3  # files of one folder that belong together
MANY_FILES: Final = 12
LONG_S: Final = 1_800


def needs_no_tools(text: str, kind: TaskType, *, attached: bool) -> bool:
    """Whether it is a question that needs no files, or has them `attached`."""
    said = text[:MAX_TEXT]
    if kind not in TALK_TYPES or not _QUESTION.search(said) or _CHANGE_VERB.search(said):
        return False
    return attached or not _PROJECT_WORD.search(said)


def only_reads(text: str, kind: TaskType) -> bool:
    """Whether the task asks only to look at something and report. In doubt no: it could change nothing."""
    said = text[:MAX_TEXT]
    if kind not in TALK_TYPES or _CHANGE_VERB.search(said):
        return False
    return bool(_QUESTION.search(said) or _LOOK_VERB.match(said))


def asks_for_edits(text: str, task: Classification) -> bool:
    """Whether the task certainly asks for edits, so that an answer in words cannot be enough.

    In doubt no: calling a right answer wrong does more harm than letting a wrong one pass.
    """
    said = _QUOTED.sub(" ", text[:MAX_TEXT])
    begins = _EDIT_VERB.match(said)
    if (
        task.type not in EDIT_TYPES
        or begins is None
        or _QUESTION.search(said)
        or _NO_EDITS.search(said)
    ):
        return False
    if begins["makes"] and task.type == "documentation":
        return False  # a text, which may be the answer itself
    if _FILE_NAME.search(said):
        return True
    quotes = said != text[:MAX_TEXT]  # quoted code can be changed in the answer
    return task.confidence >= MIN_CONFIDENCE and not quotes and bool(_OF_PROJECT.search(said))


def advise(
    task: Classification, files: Sequence[str], method: Method, forecast: Forecast
) -> Iterator[str]:
    """`files` are those that the task names."""
    if method == "api":
        yield (
            "A question that needs no files: method api answers it in one call, without a session."
        )
        return
    if _is_an_edit_or_two(task):
        yield ("Do not delegate: an edit of a few lines in one file is faster to make yourself.")
        return
    shared = _one_folder(files)
    if shared is not None and len(files) >= MIN_SHARED_FILES:
        yield (
            f"Do not split: the {len(files)} files are in {shared or 'one folder'!r} and belong "
            "together; several workers would edit the same places."
        )
    elif _is_big(task, forecast):
        yield (
            f"Split it: {_amount(task)} much for one worker. Give parts that touch different "
            "folders to separate workers, each with its own verify commands."
        )
    if task.complexity in ("complex", "high"):
        yield "Pass verify commands: a claim about a task of this size is worth little by itself."


def _one_folder(files: Sequence[str]) -> str | None:
    """The folder that all of them are in, if there is one."""
    folders = {str(PurePosixPath(file).parent) for file in files}
    return folders.pop() if len(folders) == 1 else None


def _is_an_edit_or_two(task: Classification) -> bool:
    changes = task.type not in ("analyze", "review")
    return changes and task.complexity == "trivial" and task.files <= 1 and task.size <= FEW_LINES


def _amount(task: Classification) -> str:
    if task.named >= MANY_FILES:
        return f"{task.named} files are"
    return f"a {task.complexity} task like this is"


def _is_big(task: Classification, forecast: Forecast) -> bool:
    long = forecast.seconds is not None and forecast.seconds > LONG_S
    return task.complexity == "high" or task.named >= MANY_FILES or long
