"""How does something that takes long go on the command line? It is watched, can be interrupted, and is told in the end."""

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from goent.domain.errors import GoentError
from goent.frontends.cli.screen import Unwritten, complain, give_up

if TYPE_CHECKING:
    from goent.composition.eval_app import EvalApp
    from goent.composition.live_project import Project
    from goent.evals.running.folder import Folder
    from goent.evals.running.outcome import Outcome

INTERRUPTED: Final = 128
EXECUTION: Final = 3
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Steps = Sequence[tuple[str, str]]
"""Commands that could come next, and what for."""


def conduct(
    work: Callable[["EvalApp"], Awaitable["Outcome"]],
    project: "Project",
    folder: "Folder",
    *,
    json: bool,
    next_steps: Callable[["Outcome | int"], Steps] = lambda _: (),
    if_interrupted: str = "",
) -> int:
    """Do it, tell what the folder holds then, and return the exit code.

    `if_interrupted` is said instead, where an interruption leaves nothing new to be told.
    """
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
    code = INTERRUPTED + ended if isinstance(ended, int) else ended.exit_code
    if isinstance(ended, int) and if_interrupted:
        complain(f"interrupted: {if_interrupted}")
        return code
    rows = counting(folder.rows(), folder.path)
    try:
        if json:
            print_summary_json(rows, folder.path, exit_code=code)
        else:
            show_summary(rows, folder.path, next_steps=next_steps(ended), exit_code=code)
        sys.stdout.flush()
    except Unwritten as error:
        give_up(sys.stdout)
        told = f"`go-ent eval report {shlex.quote(str(folder.path))}` tells it"
        complain(f"the summary cannot be written to stdout: {error.strerror}; {told}")
        return code or EXECUTION
    return code


async def _watched(
    work: Callable[["EvalApp"], Awaitable["Outcome"]], project: "Project", silent: bool
) -> "Outcome | int":
    from goent.composition.eval_app import EvalApp  # noqa: PLC0415 (other commands need none of it)
    from goent.frontends.cli.daemon_link import linked  # noqa: PLC0415 (the same)
    from goent.frontends.cli.evals.progress import open_progress  # noqa: PLC0415 (the same)

    with ExitStack() as shown:
        watcher = shown.enter_context(open_progress(silent=silent))
        app = EvalApp(project=project, meet=lambda: linked(project.folder), watcher=watcher)
        return await _unless_interrupted(lambda: work(app), shown)


async def _unless_interrupted(
    work: Callable[[], Awaitable["Outcome"]], shown: ExitStack
) -> "Outcome | int":
    """What it comes to, or the signal that ended it: then all that it had running is ended first.

    A second signal waits for nothing.
    """
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
                        with suppress(OSError):
                            shown.close()
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
