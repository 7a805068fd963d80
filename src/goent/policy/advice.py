"""Should this task be handed over at all, and as one?"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from goent.domain.forecasts import Forecast
from goent.domain.tasks import Classification
from goent.domain.types import Method

FEW_LINES: Final = 10
SEVERAL: Final = 3  # files of one folder that belong together
MANY_FILES: Final = 12
LONG_S: Final = 1_800


def advise(
    task: Classification, files: Sequence[str], method: Method, forecast: Forecast
) -> Iterator[str]:
    """`files` are those that the task names."""
    if method == "api":
        yield (
            "A question that needs no files: method api answers it in one call, without a worker's "
            "session."
        )
        return
    if _is_an_edit_or_two(task):
        yield (
            "Do not delegate: an edit of a few lines in one file is done sooner than a worker has "
            "read the task and you its result."
        )
        return
    shared = _one_folder(files)
    if shared is not None and len(files) >= SEVERAL:
        yield (
            f"Do not split: the {len(files)} files lie in {shared or 'one folder'!r} and belong "
            "together; several workers would meet in the same places."
        )
    elif _is_big(task, forecast):
        yield (
            f"Split it: {_amount(task)} much for one worker. "
            "Give parts that touch different folders to workers of their own, each with its verify "
            "commands."
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
