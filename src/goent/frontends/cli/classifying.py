"""`classify`: what kind of task is it, how big, and what in it says so? Needs no daemon."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from goent.domain.tasks import Classification, TaskText
from goent.domain.types import Value
from goent.frontends.cli.client import Trouble
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean, complain
from goent.frontends.cli.show import print_json
from goent.frontends.cli.words import extent

LONGEST_LINE: Final = 64 * 1024 * 1024
TELL_EVERY_S: Final = 2.0
BAD: Final = 1

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def classify(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="What to do, whole; '-' reads it from stdin."),
    ] = None,
    *,
    jsonl: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Many tasks: a JSON object with 'text' on each line, '-' for stdin. Each comes "
            "back with type, complexity and size.",
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option("--file", metavar="FILE", help="A file it is about; may be repeated."),
    ] = None,
    json: Json = False,
) -> int:
    """Tell a task's type, complexity and size, and what in it says so. Nothing is started."""
    if (task is None) == (jsonl is None):
        raise Trouble("say what to classify: a TASK, or --jsonl FILE for many", 2)
    if jsonl is not None and file:
        raise Trouble("--file goes with one TASK; with --jsonl name the files in the text", 2)
    if jsonl is not None:
        with _opened(jsonl) as lines:
            return _many(lines)
    words = sys.stdin.read() if task == "-" else task or ""
    if not words.strip():
        raise Trouble("the task is empty: say what is to be done", 2)
    told = _one(TaskText(text=words, files=tuple(file or ())))
    if json:
        print_json(told)
    else:
        _show(told)
    return 0


def _one(task: TaskText) -> Classification:
    from goent.tasks.classify import classify as judged  # noqa: PLC0415 (only this command needs it)
    from goent.tasks.context import count_context  # noqa: PLC0415 (the same)
    from goent.tasks.weights import load_weights  # noqa: PLC0415 (the same)

    return judged(task, weights=load_weights(), context=count_context(task, Path.cwd()))


def _show(told: Classification) -> None:
    much = extent(told.type, told.size, told.files)
    print(f"{told.type} ({told.confidence:.0%} sure) · {told.complexity}")
    print(f"{much} · {told.context_tokens:,} tokens to read")
    for of, title in (("type", f"why {told.type}:"), ("size", "why this size:")):
        shares = [feature for feature in told.features if feature.of == of]
        if shares:
            print(f"\n{title}")
        for feature in shares:
            print(f"  {feature.weight:+.2f}  {clean(feature.name)}")


class _Mistake(Value, frozen=True, kw_only=True):
    """The answer to a line that is no task."""

    line: int
    error: str


def _many(lines: BinaryIO) -> int:
    """A line out for each line in, in order, while they come; exit code 1 if one was bad."""
    bad = done = 0
    told = time.monotonic()
    for number, line in _numbered(lines):
        try:
            answer = _answered(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError) as error:
            bad += 1
            answer = _encode(_Mistake(line=number, error=_remedy(error)))
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        done += 1
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            complain(f"{done} tasks classified")
    if bad:
        complain(f"{bad} of {done} lines are no tasks; each is answered with its number")
    return BAD if bad else 0


def _numbered(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that say something. One without end is cut, and then read as a mistake."""
    number = 0
    while line := lines.readline(LONGEST_LINE):
        number += 1
        whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
        while not whole and (rest := lines.readline(LONGEST_LINE)):
            whole = rest.endswith(b"\n")
        if line.strip():
            yield number, line


def _answered(line: bytes) -> bytes:
    """The same object with what was found; its own `type` is a label, and is not looked at."""
    from goent.tasks.classify import classify as judged  # noqa: PLC0415 (only this command needs it)
    from goent.tasks.weights import load_weights  # noqa: PLC0415 (the same)

    given = _object(line)
    if "text" not in given:
        raise LookupError("it has no 'text'")
    told = judged(TaskText(text=_text(given["text"])), weights=load_weights())
    found = {
        "type": told.type,
        "complexity": told.complexity,
        "size": told.size,
        "confidence": told.confidence,
        "context_tokens": told.context_tokens,
    }
    return _encode({**given, **found})


def _remedy(error: Exception) -> str:
    said = error.args[0] if error.args else type(error).__name__
    return f'{said}; a line is an object such as {{"text": "fix the login page"}}'


@contextmanager
def _opened(name: str) -> Generator[BinaryIO]:
    with ExitStack() as held:
        try:
            lines = sys.stdin.buffer if name == "-" else held.enter_context(Path(name).open("rb"))
        except OSError as error:
            raise Trouble(f"cannot read {name!r}: {error.strerror}", 2) from error
        yield lines
