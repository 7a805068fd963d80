"""`go-ent eval import`: what becomes of a suite that was written for something else?"""

import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean, complain
from goent.frontends.cli.show import print_json

if TYPE_CHECKING:
    from goent.evals.files.validating import Checked

MISTAKEN = 2

Form = Annotated[
    Literal["agentv", "promptfoo", "yaml", "jsonl"],
    typer.Argument(
        metavar="FORM",
        help="What the files are: agentv or promptfoo; or what they become: yaml (of a data set), "
        "jsonl (of a suite).",
        show_default=False,
    ),
]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", show_default=False)]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        help="Where to write; default: the folder of the first file.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")]


class Brought(Value, frozen=True, kw_only=True):
    """What was written, what could not be carried over, and what has to be mended by hand: lost checks too."""

    written: tuple[str, ...]
    notes: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


def import_(
    form: Form, files: Files, *, out: Out = None, force: Force = False, json: Json = False
) -> int:
    """Make suites and targets of go-ent's from those of AgentV and promptfoo; or turn data sets into suites and back.

    Tells what was not carried over. Exits 2 if something is left to be mended by hand.
    """
    from goent.evals.importing import imported, write  # noqa: PLC0415 (only here is it needed)

    folder = out or files[0].parent
    told = imported(form, files, folder)
    written = write(told, folder, force=force)
    suites = [path for path in written if path.name.endswith((".eval.yaml", ".jsonl"))]
    mistakes = (*told.lost, *_mistakes(suites, written))
    brought = Brought(written=tuple(map(str, written)), notes=told.notes, mistakes=mistakes)
    if json:
        print_json(brought)
    else:
        _show(brought)
    if suites and not json:
        complain(f"{'when that is mended' if mistakes else 'next'}: {clean(_next(suites))}")
    return MISTAKEN if brought.mistakes else 0


def _mistakes(suites: Sequence[Path], written: Sequence[Path]) -> tuple[str, ...]:
    from goent.evals.files import load_targets, validate  # noqa: PLC0415 (the same)

    if suites:
        return validate(suites, os.environ).mistakes
    for path in written:
        load_targets(path.parent, os.environ, named=path)
    return ()


def _show(brought: Brought) -> None:
    for note in brought.notes:
        complain(clean(note))
    for mistake in brought.mistakes:
        complain(clean(f"to be mended: {mistake}"))
    for path in brought.written:
        typer.echo(clean(path))


def _next(suites: Sequence[Path]) -> str:
    """The command that runs them, with what it has to be told besides; a target must be there first."""
    from goent.evals.files import validate  # noqa: PLC0415 (the same)

    found = validate(suites, os.environ)
    run = ["go-ent", "eval", "run", *map(str, suites), *_options(found)]
    first = "" if found.targets else "write a target to .goent/targets.yaml, then "
    return first + shlex.join(run)


def _options(found: "Checked") -> Iterator[str]:
    from goent.evals.graders.judging import needs_a_judge  # noqa: PLC0415 (the same)
    from goent.evals.running.plan import Wanted, targets_of  # noqa: PLC0415 (the same)

    cases = [case for suite in found.suites for case in suite.cases]
    asked: set[str] = set()
    try:
        for case in cases:
            asked.update(targets_of(case, found.targets, Wanted()))
    except ConfigError:
        yield from ("--target", "NAME")
    if any(map(needs_a_judge, cases)):
        judged = bool(asked) and all(found.targets[name].grader_target for name in asked)
        yield from () if judged else ("--judge", "NAME")
