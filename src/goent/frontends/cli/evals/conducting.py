"""How does something that takes long go on the command line? It is watched, can be interrupted, and is told in the end."""

import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from goent.domain.errors import GoentError

if TYPE_CHECKING:
    from goent.composition.eval_app import EvalApp
    from goent.composition.live_project import Project
    from goent.evals.running.folder import Folder
    from goent.evals.running.outcome import Outcome

INTERRUPTED: Final = 128
EXECUTION: Final = 3
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR: Final = b"\x1b[?25h"

Steps = Sequence[tuple[str, str]]
"""Commands that could come next, and what for."""


def conduct(
    work: Callable[["EvalApp"], Awaitable["Outcome"]],
    project: "Project",
    folder: "Folder",
    *,
    json: bool,
    next_steps: Callable[["Outcome | int"], Steps] = lambda _: (),
) -> int:
    """Do it, tell what the folder holds then, and return the exit code."""
    import anyio  # noqa: PLC0415 (other commands need none of it)

    from goent.evals.running.folder import counting  # noqa: PLC0415 (the same)
    from goent.frontends.cli.evals.summary import print_summary_json, show_summary  # noqa: PLC0415 (the same)

    try:
        ended = anyio.run(_watched, work, project, json)
    except GoentError:
        raise
    except Exception:  # noqa: BLE001 (a defect of ours says nothing of quality, which 1 would mean)
        traceback.print_exc()
        return EXECUTION
    rows = counting(folder.rows(), folder.path).rows
    code = INTERRUPTED + ended if isinstance(ended, int) else ended.exit_code
    stopped = "" if isinstance(ended, int) else ended.stopped
    left_out = 0 if isinstance(ended, int) else ended.left_out
    if json:
        print_summary_json(rows, folder.path, left_out=left_out, stopped=stopped, exit_code=code)
    else:
        show_summary(
            rows,
            folder.path,
            next_steps=next_steps(ended),
            left_out=left_out,
            stopped=stopped,
            exit_code=code,
        )
    return code


async def _watched(
    work: Callable[["EvalApp"], Awaitable["Outcome"]], project: "Project", silent: bool
) -> "Outcome | int":
    from goent.composition.eval_app import EvalApp  # noqa: PLC0415 (other commands need none of it)
    from goent.frontends.cli.conversing import conversing  # noqa: PLC0415 (the same)
    from goent.frontends.cli.evals.progress import open_progress  # noqa: PLC0415 (the same)

    with open_progress(silent=silent) as watcher:
        app = EvalApp(project=project, meet=lambda: conversing(project.folder), watcher=watcher)
        return await _unless_interrupted(lambda: work(app))


async def _unless_interrupted(work: Callable[[], Awaitable["Outcome"]]) -> "Outcome | int":
    """What it comes to, or the signal that ended it: then all that it had running is ended first."""
    import anyio  # noqa: PLC0415 (other commands need none of it)

    came: list[int] = []
    done: list[Outcome] = []
    wrong: list[GoentError] = []
    async with anyio.create_task_group() as group:

        async def listen() -> None:
            wanted = [one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN]  # nohup
            with anyio.open_signal_receiver(*wanted) as heard:
                async for number in heard:
                    if came:  # asked twice: its guard ends what is left
                        if sys.stderr.isatty():
                            os.write(sys.stderr.fileno(), SHOW_CURSOR)
                        os._exit(INTERRUPTED + number)
                    came.append(number)
                    working.cancel()

        group.start_soon(listen)
        with anyio.CancelScope() as working:
            try:
                done.append(await work())
            except GoentError as error:  # to be told as itself, not as one of a group
                wrong.append(error)
        group.cancel_scope.cancel()
    if wrong:
        raise wrong[0]
    return done[0] if done else came[0]
