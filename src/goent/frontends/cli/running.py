"""`run` and `prompt`: give a worker something to do, watch it, and tell what came of it."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from goent.domain.replies import Cancelled, Prompted, Result, Spawned
from goent.domain.requests import CancelRequest, PromptRequest, SpawnRequest, WorkerRequest
from goent.domain.types import Isolation, Method, Preset
from goent.frontends.cli.client import (
    Daemon,
    Gone,
    Trouble,
    daemon,
    find_worker,
    status_of,
    what_to_do,
)
from goent.frontends.cli.keys import counted_interrupts, open_keyboard
from goent.frontends.cli.live import Follower
from goent.frontends.cli.options import Json, Worker, no_blank_commands
from goent.frontends.cli.project import ask_before_work
from goent.frontends.cli.screen import complain, open_screen
from goent.frontends.cli.show import exit_code, print_json, show_result

INTERRUPTED = 130
BOUNDS = "Bounds"
WHERE = "Who and where"

Text = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to do next; '-' reads it from stdin.")
]
Files = Annotated[
    list[str] | None,
    typer.Option("--file", metavar="FILE", help="A file to look at first; may be repeated."),
]


def run(  # noqa: PLR0913 (each is an option)
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to do, whole; '-' reads it from stdin.")
    ],
    *,
    provider: Annotated[
        str | None,
        typer.Option(help="Insist on a provider of `go-ent providers`.", rich_help_panel=WHERE),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Insist on a model: glm-5.3, zai/glm-5.3.", rich_help_panel=WHERE),
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="Insist on how it runs.", rich_help_panel=WHERE)
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(help="Where to work (default: here).", rich_help_panel=WHERE),
    ] = None,
    file: Files = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            help="'worktree' or 'copy' gives it a folder of its own, 'dedicated' a process.",
            rich_help_panel=WHERE,
        ),
    ] = "auto",
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted",
            help="With a folder of its own: take uncommitted changes along.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    carry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="With a folder of its own: an untracked file that it needs; may be repeated.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    permissions: Annotated[
        Preset | None,
        typer.Option(
            help="What it may do unasked: nothing that changes anything (readonly, ask), "
            "edits (edit), everything inside its directory (auto).",
            rich_help_panel=BOUNDS,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End it after this long.", rich_help_panel=BOUNDS),
    ] = None,
    verify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            callback=no_blank_commands,
            help="Must exit 0 for the work to count as verified; may be repeated.",
            rich_help_panel=BOUNDS,
        ),
    ] = None,
    allow_fallback: Annotated[
        bool | None,
        typer.Option(
            "--allow-fallback/--no-fallback",
            help="Let it move to another provider if its own fails.",
            rich_help_panel=BOUNDS,
        ),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(metavar="USD", help="What it may cost.", rich_help_panel=BOUNDS),
    ] = None,
    allowed_tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --method agent: the only tools it may use, as in Read,Grep; '': none.",
            rich_help_panel=BOUNDS,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the worker's id and leave it running.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep/--close", help="Leave it open for `go-ent prompt` at the end.")
    ] = False,
    json: Json = False,
) -> int:
    """Give a task to a new worker, watch it work, and see what came of it.

    Ctrl-C cancels the worker and shows what it had done; a second one leaves at once.
    Exits 0 if the task was completed, 1 if it failed or was refuted.
    """
    request = SpawnRequest(
        task=_text(task),
        provider=provider,
        model=model,
        method=method,
        cwd=None if cwd is None else str(cwd),
        files=tuple(str(Path(name).absolute()) for name in file or ()),
        isolation=isolation,
        uncommitted=uncommitted,
        carry=tuple(carry or ()),
        permissions=permissions,
        budget_usd=budget_usd,
        timeout_s=timeout,
        verify=tuple(verify or ()),
        allow_fallback=allow_fallback,
        allowed_tools=_names(allowed_tools),
        wait_s=0.0,
    )
    ask_before_work(cwd, json=json)
    with daemon() as through:
        spawned = through.call("worker_spawn", request, Spawned)
        for warning in spawned.warnings:
            complain(f"{warning}")
        if detach:
            _show_detached(spawned, json=json)
            return 0
        worker = spawned.worker_id
        line = f"{worker} on {spawned.provider} ({spawned.reason})"
        code = _see_through(through, worker, 1, line, json=json)
        if keep:
            _say_aside(f"go on with: go-ent prompt {worker} …", json=json)
        else:
            parting = CancelRequest(worker_id=worker, reason="its run is over", close=True)
            through.call("worker_cancel", parting, Cancelled)
        return code


def prompt(
    worker: Worker,
    text: Text,
    *,
    file: Files = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait behind a turn that is under way.")
    ] = False,
    json: Json = False,
) -> int:
    """Give an open worker something more to do; it remembers the rest.

    Exits 0 if the turn was completed, 1 if it failed or was refuted.
    """
    with daemon() as through:
        found = find_worker(worker, through)
        request = PromptRequest(
            worker_id=found,
            prompt=_text(text),
            files=tuple(str(Path(name).absolute()) for name in file or ()),
            queue=queue,
        )
        turn = through.call("worker_prompt", request, Prompted).turn
        return _see_through(through, found, turn, f"{found} turn {turn}", json=json)


def _text(given: str) -> str:
    if given != "-":
        return given
    if sys.stdin.isatty():
        complain("reading from the terminal; Ctrl-D ends it")
    return sys.stdin.read()


def _names(given: str | None) -> tuple[str, ...] | None:
    """Names with commas between them; empty text is none of them, nothing at all is no choice."""
    if given is None:
        return None
    return tuple(name for part in given.split(",") if (name := part.strip()))


def _see_through(through: Daemon, worker: str, turn: int, title: str, *, json: bool) -> int:
    """Watch the turn to its end, tell its result, and give the exit code."""
    try:
        with (
            counted_interrupts() as interrupts,
            open_keyboard() as keyboard,
            open_screen(silent=json) as screen,
        ):
            screen.line(title, "dim")
            Follower(through, worker, screen, None if json else keyboard, interrupts).follow(turn)
    except KeyboardInterrupt:
        hint = f"{worker} may still be running: `go-ent cancel {worker}` ends it"
        raise Trouble(hint, INTERRUPTED) from None
    except Gone as gone:
        raise Gone(f"{gone.why}, and the turn of {worker} with it; {what_to_do(worker)}") from None
    result = through.call("worker_result", WorkerRequest(worker_id=worker), Result)
    if json:
        print_json(result)
    else:
        show_result(result, cwd=status_of(worker, through).cwd, text=False)
    if interrupts.count:
        return INTERRUPTED
    return exit_code(result)


def _show_detached(spawned: Spawned, *, json: bool) -> None:
    if json:
        print_json(spawned)
        return
    print(spawned.worker_id, flush=True)
    _say_aside(f"go-ent output -f {spawned.worker_id} follows it", json=json)


def _say_aside(text: str, *, json: bool) -> None:
    if not json and sys.stderr.isatty():
        print(text, file=sys.stderr)
