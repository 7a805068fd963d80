"""The command `go-ent classify`: a task's type, complexity and size."""

import sys
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from goent.cli.command_options import FilesOption, JsonOption
from goent.cli.daemon_client import CommandError
from goent.cli.display import print_reply
from goent.cli.labels import expected_change, token_words
from goent.cli.terminal import print_notice, strip_controls
from goent.domain.task_profile import Classification, TaskText
from goent.domain.types import Value
from goent.routing.classification import classify as classify_text
from goent.routing.classification import count_context
from goent.routing.task_features import load_weights

MAX_LINE: Final = 64 * 1024 * 1024
PROGRESS_EVERY_S: Final = 2.0
BAD_LINES: Final = 1

_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def classify(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="The whole task; '-' reads it from stdin."),
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
    file: FilesOption = None,
    json: JsonOption = False,
) -> int:
    """Classify a task by type, complexity and size, with reasons. Starts nothing."""
    if (task is None) == (jsonl is None):
        raise CommandError("give a TASK, or --jsonl FILE for many", 2)
    if jsonl is not None and file:
        raise CommandError(
            "--file works with one TASK; with --jsonl, name the files in the text", 2
        )
    if jsonl is not None:
        with _open_lines(jsonl) as lines:
            return _classify_lines(lines)
    words = sys.stdin.read() if task == "-" else task or ""
    if not words.strip():
        raise CommandError("the task is empty", 2)
    told = _classify_task(TaskText(text=words, files=tuple(file or ())))
    print_reply(told, _show_classification, json=json)
    return 0


def _classify_task(task: TaskText) -> Classification:

    return classify_text(task, weights=load_weights(), context=count_context(task, Path.cwd()))


def _show_classification(told: Classification) -> None:
    much = expected_change(told.type, told.size, told.files)
    print(f"{told.type} ({told.confidence:.0%} sure) · {told.complexity}")
    print(f"{much} · {token_words(told.context_tokens)} to read")
    for of, title in (("type", f"why {told.type}:"), ("size", "why this size:")):
        shares = [feature for feature in told.features if feature.of == of]
        if shares:
            print(f"\n{title}")
        for feature in shares:
            print(f"  {feature.weight:+.2f}  {strip_controls(feature.name)}")


class _LineMistake(Value, frozen=True, kw_only=True):
    """The answer to a line that is not a task."""

    line: int
    error: str


def _classify_lines(lines: BinaryIO) -> int:
    """Answer each line with one line, in order, as they arrive; exit code 1 if one was bad."""
    bad = done = 0
    told = time.monotonic()
    for number, line in _numbered_lines(lines):
        try:
            answer = _classify_line(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError) as error:
            bad += 1
            answer = _encode(_LineMistake(line=number, error=_mistake_text(error)))
        sys.stdout.buffer.write(answer + b"\n")
        sys.stdout.buffer.flush()
        done += 1
        if time.monotonic() - told > PROGRESS_EVERY_S:
            told = time.monotonic()
            print_notice(f"{done} tasks classified")
    if bad:
        print_notice(f"{bad} of {done} lines are not tasks; each is answered with its number")
    return BAD_LINES if bad else 0


def _numbered_lines(lines: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank. One that is too long is cut, and becomes a mistake."""
    number = 0
    while line := lines.readline(MAX_LINE):
        number += 1
        whole = line.endswith(b"\n") or len(line) < MAX_LINE
        while not whole and (rest := lines.readline(MAX_LINE)):
            whole = rest.endswith(b"\n")
        if line.strip():
            yield number, line


def _classify_line(line: bytes) -> bytes:
    """The same object with the classification; its own `type` is a label, and is not read."""
    given = _decode_object(line)
    if "text" not in given:
        raise LookupError("there is no 'text'")
    told = classify_text(TaskText(text=_decode_text(given["text"])), weights=load_weights())
    found = {
        "type": told.type,
        "complexity": told.complexity,
        "size": told.size,
        "confidence": told.confidence,
        "context_tokens": told.context_tokens,
    }
    return _encode({**given, **found})


def _mistake_text(error: Exception) -> str:
    said = error.args[0] if error.args else type(error).__name__
    return f'{said}; a line is an object such as {{"text": "fix the login page"}}'


@contextmanager
def _open_lines(name: str) -> Generator[BinaryIO]:
    with ExitStack() as held:
        try:
            lines = sys.stdin.buffer if name == "-" else held.enter_context(Path(name).open("rb"))
        except OSError as error:
            raise CommandError(f"cannot read {name!r}: {error.strerror}", 2) from error
        yield lines
