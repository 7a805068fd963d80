"""What can be done now? Commands that can be pasted, and what each is for."""

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from goent.frontends.cli.evals.conducting import Steps

if TYPE_CHECKING:
    from goent.evals.rows import Row
    from goent.evals.running.evaluate import Bounds
    from goent.evals.running.folder import Folder
    from goent.evals.running.outcome import Outcome
    from goent.evals.running.preparing import Prepared

IN_VAIN: Final = ("refused", "unknown_model", "auth_refused", "no_model", "opencode_missing")
"""Kinds of failures that stay until something changes."""
_OF_A_SUITE: Final = " of the suite "  # so a budget is told that is not the run's


def next_steps(
    ended: "Outcome | int", prepared: "Prepared", folder: "Folder", bounds: "Bounds"
) -> Steps:
    from goent.evals.running.preparing import asked  # noqa: PLC0415 (other commands need none of it)

    out = shlex.quote(str(folder.path))
    again = f"{shlex.join(['go-ent', 'eval', 'run', *asked(prepared.manifest)])} --out {out}"
    if isinstance(ended, int):
        return ((f"{again}{_limits(bounds)} --resume", "go on with it"),)
    ungraded, failed = _errors(folder)
    # What was done and only not graded is not done again: that would cost as much as the first time.
    steps = [(f"go-ent eval grade {out}", _graded_again(ungraded))] if ungraded else []
    halted = any(suite.fail_on_error for suite in prepared.suites) and bool(ungraded or failed)
    retry = f"{again}{_limits(bounds)} --retry errors"
    if halted and failed and ended.unrun:
        steps.append((retry, "make what failed again, and the rest"))
    elif ended.unrun:
        more = (bounds, "") if halted else _more(ended.stopped, bounds, prepared, folder)
        steps.append((f"{again}{_limits(more[0])} --resume", f"go on with it{more[1]}"))
    elif failed:
        steps.append((retry, _made_again(failed, graded_first=bool(ungraded))))
    return steps or ((f"go-ent eval report {out} --html report.html", "look at it"),)


def _errors(folder: "Folder") -> "tuple[list[Row], list[Row]]":
    """Trials that were made and not graded, and those that could not be made."""
    from goent.evals.running.folder import counting  # noqa: PLC0415 (other commands need none of it)

    rows = counting(folder.rows(), folder.path).rows
    errors = [row for row in rows if row.execution_status == "execution_error"]
    return [row for row in errors if row.ungraded], [row for row in errors if not row.ungraded]


def _made_again(rows: "Sequence[Row]", *, graded_first: bool) -> str:
    what_for = "make the attempts with errors again"
    if graded_first:
        return f"then {what_for}"
    if all((row.error or "").partition(":")[0] in IN_VAIN for row in rows):
        return f"when that is mended, {what_for}"
    return what_for


def _graded_again(rows: "Sequence[Row]") -> str:
    errors = [row.error or "" for row in rows]
    if all(error.startswith("cannot start ") for error in errors):
        when = "when the grader's program can be started"
    elif all(error.startswith("judge ") for error in errors):
        when = "when the judge answers, or with --judge NAME by another one"
    else:
        when = "when that is mended"
    return f"{when}: grade again, without asking an agent"


def _more(
    stopped: str, bounds: "Bounds", prepared: "Prepared", folder: "Folder"
) -> "tuple[Bounds, str]":
    """With more to spend than was spent already, which counts when the run goes on."""
    if not stopped:
        return bounds, ""
    if bounds.budget_usd is None or _OF_A_SUITE in stopped:
        return bounds, ", when its suite's budget_usd is larger"
    limit = 2 * max(bounds.budget_usd, _spent(prepared, folder))
    if not limit:
        return replace(bounds, budget_usd=None), ", without a limit"
    limit = math.ceil(limit * 10_000) / 10_000
    return replace(bounds, budget_usd=limit), f", for up to ${limit:g} in all"


def _spent(prepared: "Prepared", folder: "Folder") -> float:
    from goent.evals.running.earlier import cut_off_usd, superseded  # noqa: PLC0415 (other commands need none of it)

    every = (*superseded(folder.path), *folder.rows().rows)
    rows = (row for row in every if not row.held_back_by)
    lost = (cut_off_usd(folder.path / trial.folder) for trial in prepared.trials)
    return math.fsum((*(row.known_cost_usd for row in rows), *lost))


def _limits(bounds: "Bounds") -> str:
    """What the run may take, as it was asked for."""
    told = (
        ("--workers", bounds.workers, None),
        ("--budget-usd", bounds.budget_usd, None),
        ("--timeout", bounds.timeout_s, 600.0),
        ("--keep-workspaces", bounds.keep, "failure"),
    )
    return "".join(
        f" {option} {value:g}" if isinstance(value, float) else f" {option} {value}"
        for option, value, usual in told
        if value != usual
    )
