"""How do the commands around an attempt run? They are told about it as JSON, and nothing of them outlives it."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.evals.commands import Commands, Order
from goent.evals.prompts import question
from goent.evals.suites import Case, Hook
from goent.evals.turns import whole_of

TAIL: Final = 500  # characters of what a failed hook said


class About(Value, frozen=True, kw_only=True):
    """What a hook reads on standard input. Before and after all cases there is no case."""

    workspace_path: str
    eval_run_id: str
    test_id: str | None = None
    case_input: str | None = None
    case_metadata: Mapping[str, object] = {}


def about(workspace: Path, run_id: str, case: Case | None = None) -> About:
    told = About(workspace_path=str(workspace), eval_run_id=run_id)
    if case is None:
        return told
    return msgspec.structs.replace(
        told, test_id=case.id, case_input=question(whole_of(case)), case_metadata=case.metadata
    )


async def run_hook(
    name: str, hook: Hook, told: About, commands: Commands, *, most_s: float | None = None
) -> str:
    """What went wrong, in words; nothing if it did not.

    It runs in the workspace, or where it says, and can write in the workspace alone.
    """
    limit = hook.timeout_s if most_s is None else min(hook.timeout_s, most_s)
    shown = f"{name} ({shlex.join(hook.command)[:200]})"
    order = Order(
        command=hook.command,
        cwd=hook.cwd or Path(told.workspace_path),
        stdin=msgspec.json.encode(told),
        timeout_s=limit,
        workspace=Path(told.workspace_path),
    )
    try:
        ran = await commands.run(order)
    except (WorkerCrashed, ValueError) as error:  # a zero byte in a word is a ValueError
        return f"{shown}: {error}"
    done = ran.done
    said = (done.errors or done.output)[-TAIL:].strip() or "it said nothing"
    if done.exit is None:
        return f"{shown} did not end within {limit:g} s, and was ended: {said}"
    hint = f"\n{ran.hint}" if ran.hint else ""
    return f"{shown} ended with {done.exit}: {said}{hint}" if done.exit else ""
