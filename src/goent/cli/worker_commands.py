"""Commands about workers: run, prompt, ps, status, output, wait, result, answer and cancel."""

import sys
from pathlib import Path
from typing import Annotated, get_args

import msgspec
import typer

from goent.cli.board import Board, open_board
from goent.cli.command_options import (
    FilesOption,
    JsonOption,
    VerboseOption,
    WaitTimeoutOption,
    WorkerArgument,
    ask_before_work,
    no_blank_commands,
    require_positive,
)
from goent.cli.daemon_client import (
    MAX_WORKERS,
    CommandError,
    DaemonClient,
    DaemonDisconnected,
    cursor_before,
    find_worker,
    open_daemon_client,
    recovery_hint,
    status_of,
    wait_until,
)
from goent.cli.display import (
    has_succeeded,
    print_json,
    print_reply,
    result_exit_code,
    show_result,
    show_status,
    show_workers,
)
from goent.cli.labels import badge, route_reason
from goent.cli.terminal import (
    count_interrupts,
    open_keyboard,
    print_notice,
    print_text,
    strip_controls,
)
from goent.cli.terminal_prompt import MESSAGE_NOT_PASSED, STDERR_WIDTH
from goent.cli.turn_follower import TurnFollower
from goent.domain.events import AnyEvent, TextDelta, Thought, TurnEnded, WorkerClosed
from goent.domain.question_text import one_line
from goent.domain.replies import (
    AnswerReply,
    CancelReply,
    OutputReply,
    PromptReply,
    Result,
    SpawnReply,
    WaitReply,
    WorkerList,
)
from goent.domain.requests import (
    AnswerRequest,
    CancelRequest,
    ListRequest,
    OutputFilter,
    OutputRequest,
    PromptRequest,
    SpawnRequest,
    WaitRequest,
    WorkerRequest,
)
from goent.domain.types import (
    ENDED_STATES,
    Isolation,
    Method,
    PermissionAnswer,
    Preset,
    WorkerState,
)
from goent.workers.worker_report import FILTER_EVENTS, render_event, turn_end_line

INTERRUPTED = 130
BOUNDS_PANEL = "Bounds"
WHERE_PANEL = "Who and where"

PromptArgument = Annotated[
    str, typer.Argument(metavar="TEXT", help="What to do next; '-' reads it from stdin.")
]


def run(  # noqa: PLR0913 (each is an option)
    task: Annotated[
        str, typer.Argument(metavar="TASK", help="What to do, whole; '-' reads it from stdin.")
    ],
    *,
    provider: Annotated[
        str | None,
        typer.Option(help="Pin a provider from `go-ent providers`.", rich_help_panel=WHERE_PANEL),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Pin a model: glm-5.3, zai/glm-5.3.", rich_help_panel=WHERE_PANEL),
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="Pin how it runs.", rich_help_panel=WHERE_PANEL)
    ] = None,
    cwd: Annotated[
        Path | None,
        typer.Option(help="Where to work (default: here).", rich_help_panel=WHERE_PANEL),
    ] = None,
    file: FilesOption = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            help="'worktree' or 'copy' gives it its own folder, 'dedicated' its own process.",
            rich_help_panel=WHERE_PANEL,
        ),
    ] = "auto",
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted",
            help="With its own folder: start with uncommitted changes too.",
            rich_help_panel=WHERE_PANEL,
        ),
    ] = False,
    carry: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="With its own folder: an untracked file that it needs; may be repeated.",
            rich_help_panel=WHERE_PANEL,
        ),
    ] = None,
    permissions: Annotated[
        Preset | None,
        typer.Option(
            help="What it may do without asking: only read (readonly, ask), "
            "edit (edit), anything inside its directory (auto).",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            callback=require_positive,
            help="End a turn that takes longer.",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    verify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            callback=no_blank_commands,
            help="Must exit 0 for the work to count as verified; may be repeated.",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    allow_fallback: Annotated[
        bool | None,
        typer.Option(
            "--allow-fallback/--no-fallback",
            help="Let it move to another provider if its own fails.",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            metavar="USD",
            callback=require_positive,
            help="What it may cost.",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    allowed_tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --method agent: the only tools it may use, e.g. Read,Grep; '': none.",
            rich_help_panel=BOUNDS_PANEL,
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Print the worker's id and leave it running.")
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep/--close", help="Leave it open for `go-ent prompt` afterwards.")
    ] = False,
    verbose: VerboseOption = False,
    json: JsonOption = False,
) -> int:
    """Give a task to a new worker, watch it work, and see the result.

    Ctrl-C cancels the worker and shows its work so far; a second one exits immediately.
    Exits 0 if the task was completed, 1 if it failed or was refuted.
    """
    request = SpawnRequest(
        task=_task_text(task),
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
        allowed_tools=_split_names(allowed_tools),
        wait_s=0.0,
    )
    ask_before_work(cwd, json=json)
    with open_daemon_client() as through:
        spawned = through.call("worker_spawn", request, SpawnReply)
        for warning in spawned.warnings:
            print_notice(f"{warning}")
        if detach:
            _show_detached(spawned, json=json)
            return 0
        worker = spawned.worker_id
        line = f"{worker} on {spawned.provider} ({route_reason(spawned.reason, verbose=verbose)})"
        code = _follow_to_end(through, worker, 1, line, json=json)
        if keep:
            _print_hint(f"continue with: go-ent prompt {worker} …", json=json)
        else:
            parting = CancelRequest(worker_id=worker, reason="its run ended", close=True)
            through.call("worker_cancel", parting, CancelReply)
        return code


def prompt(
    worker: WorkerArgument,
    text: PromptArgument,
    *,
    file: FilesOption = None,
    queue: Annotated[
        bool, typer.Option("--queue", help="Wait in the queue while another turn runs.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Give an open worker another prompt; it remembers the earlier ones.

    Exits 0 if the turn was completed, 1 if it failed or was refuted.
    """
    with open_daemon_client() as through:
        found = find_worker(worker, through)
        request = PromptRequest(
            worker_id=found,
            prompt=_task_text(text),
            files=tuple(str(Path(name).absolute()) for name in file or ()),
            queue=queue,
        )
        turn = through.call("worker_prompt", request, PromptReply).turn
        return _follow_to_end(through, found, turn, f"{found} turn {turn}", json=json)


def _task_text(given: str) -> str:
    if given != "-":
        return given
    if sys.stdin.isatty():
        print_notice("reading from the terminal; Ctrl-D ends it")
    return sys.stdin.read()


def _split_names(given: str | None) -> tuple[str, ...] | None:
    """Comma-separated names; an empty string names none, None leaves the choice open."""
    if given is None:
        return None
    return tuple(name for part in given.split(",") if (name := part.strip()))


def _follow_to_end(through: DaemonClient, worker: str, turn: int, title: str, *, json: bool) -> int:
    """Watch the turn to its end, show its result, and return the exit code."""
    try:
        with (
            count_interrupts() as interrupts,
            open_keyboard() as keyboard,
            open_board(silent=json) as board,
        ):
            board.line(title, "dim")
            TurnFollower(through, worker, board, None if json else keyboard, interrupts).follow(
                turn
            )
    except KeyboardInterrupt:
        hint = f"{worker} may still be running: `go-ent cancel {worker}` ends it"
        raise CommandError(hint, INTERRUPTED) from None
    except DaemonDisconnected as gone:
        raise DaemonDisconnected(
            f"{gone.reason}, and the turn of {worker} with it; {recovery_hint(worker)}"
        ) from None
    result = through.call("worker_result", WorkerRequest(worker_id=worker), Result)
    if json:
        print_json(result)
    else:
        show_result(result, cwd=status_of(worker, through).cwd, text=False)
    if interrupts.count:
        return INTERRUPTED
    return result_exit_code(result)


def _show_detached(spawned: SpawnReply, *, json: bool) -> None:
    if json:
        print_json(spawned)
        return
    print(spawned.worker_id, flush=True)
    _print_hint(f"go-ent output -f {spawned.worker_id} follows it", json=json)


def _print_hint(text: str, *, json: bool) -> None:
    if not json and sys.stderr.isatty():
        print(text, file=sys.stderr)


PAGE_SIZE = 100_000
EVENT_WAIT_S = 3600.0
ANSWERS: dict[str, PermissionAnswer] = {
    **{option: option for option in get_args(PermissionAnswer)},
    "y": "allow_once",
    "a": "allow_always",
    "n": "reject",
}


def ps(
    *,
    all_: Annotated[bool, typer.Option("--all", "-a", help="The newest 200, not 20.")] = False,
    state: Annotated[WorkerState | None, typer.Option(help="Only those in this state.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only those of this provider.")] = None,
    json: JsonOption = False,
) -> int:
    """List the workers of this project, newest first."""
    request = ListRequest(state=state, provider=provider, limit=MAX_WORKERS if all_ else 20)
    with open_daemon_client() as through:
        workers = through.call("worker_list", request, WorkerList)
    if json:
        print_json(workers)
    else:
        show_workers(workers.workers, hidden=workers.total - len(workers.workers))
    return 0


def status(worker: WorkerArgument, *, json: JsonOption = False) -> int:
    """Show a worker's state, step, progress, cost and open question."""
    with open_daemon_client() as through:
        now = status_of(find_worker(worker, through), through)
    print_reply(now, show_status, json=json)
    return 0


def output(
    worker: WorkerArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow it until its turn ends.")
    ] = False,
    since: Annotated[
        int, typer.Option(metavar="CURSOR", help="Only what follows this cursor.", min=0)
    ] = 0,
    filter_: Annotated[
        OutputFilter, typer.Option("--filter", help="Which events to print.")
    ] = "all",
    json: JsonOption = False,
) -> int:
    """Print a worker's messages and tool calls.

    With --json each page is one object on a line of its own; its cursor continues it.
    """
    with open_daemon_client() as through:
        found = find_worker(worker, through)
        now = status_of(found, through)
        if follow and now.state not in ENDED_STATES:
            after = since or cursor_before(found, through)
            through.watch(found, after=after)
            try:
                _follow(through, found, filter_, json=json, since=since)
            except DaemonDisconnected as gone:
                raise DaemonDisconnected(
                    f"{gone.reason}, and the turn of {found} with it; {recovery_hint(found)}"
                ) from None
        else:
            _print_pages(through, found, since, filter_, json=json)
    return 0


def _print_pages(
    through: DaemonClient, worker: str, after: int, kind: OutputFilter, *, json: bool
) -> int:
    """Print everything after the cursor; returns the new cursor."""
    more = True
    while more:
        request = OutputRequest(worker_id=worker, cursor=after, limit=PAGE_SIZE, filter=kind)
        page = through.call("worker_output", request, OutputReply)
        if json:
            _print_line(page)
        elif page.text:
            _print_page(page)
        more = page.more and page.cursor > after
        after = page.cursor
    return after


def _print_page(page: OutputReply) -> None:
    """The text; if it ends with the line that ends a turn, that line is coloured."""
    end = turn_end_line(page.state, page.evidence)
    before = page.text.removesuffix(end)
    if before == page.text:
        print(strip_controls(page.text), flush=True)
        return
    print(strip_controls(before), end="", flush=True)
    print_text(end, badge(page.state, page.evidence).style)
    sys.stdout.flush()


def _print_line(page: OutputReply) -> None:

    sys.stdout.buffer.write(msgspec.json.encode(page) + b"\n")
    sys.stdout.flush()


def _follow(
    through: DaemonClient, worker: str, kind: OutputFilter, *, json: bool, since: int
) -> None:
    message: tuple[type, str] | None = None
    with Board() as board:
        while True:
            for envelope in through.events(EVENT_WAIT_S):
                event = envelope.event
                if not json and isinstance(event, FILTER_EVENTS[kind]):
                    message = _print_event(board, event, message)
                if isinstance(event, TurnEnded | WorkerClosed):
                    if json:
                        _print_pages(through, worker, since, kind, json=True)
                    return
            if json:
                since = _print_pages(through, worker, since, kind, json=True)


def _print_event(
    board: Board, event: AnyEvent, last: tuple[type, str] | None
) -> tuple[type, str] | None:
    """Text of one message continues its line; everything else is a line of its own."""
    if isinstance(event, TextDelta | Thought):
        message = (type(event), event.message)
        if message != last:
            board.end_line()
        board.write_words(event.text)
        return message
    if isinstance(event, TurnEnded):
        board.end_line()
        print_text(render_event(event), badge(event.state, event.evidence).style)
        return None
    if text := render_event(event):
        board.line(text)
        return None
    return last


def wait(
    workers: Annotated[
        list[str], typer.Argument(metavar="WORKER...", help="Ids, or 'last'.", show_default=False)
    ],
    *,
    any_: Annotated[bool, typer.Option("--any", help="Return when the first one ends.")] = False,
    timeout: WaitTimeoutOption = None,
    json: JsonOption = False,
) -> int:
    """Wait until workers end their turn, or one of them asks a question.

    Exits 0 if the workers completed their turns and none was refuted, 1 if not.
    """
    with open_daemon_client() as through:
        found = tuple(find_worker(worker, through) for worker in workers)
        waited = wait_until(
            lambda seconds: through.call(
                "worker_wait",
                WaitRequest(worker_ids=found, any=any_, timeout_s=seconds),
                WaitReply,
            ),
            lambda reply: not reply.timed_out,
            timeout,
        )
    if json:
        print_json(waited)
    else:
        show_workers(waited.workers)
    for worker in waited.workers:
        if worker.permission and not json:
            asks = f"{worker.worker_id} asks for {worker.permission.tool}"
            how = f"go-ent answer {worker.worker_id} {worker.permission.id} allow_once"
            print_notice(f"{asks}: {one_line(worker.permission.detail, STDERR_WIDTH)}; {how}")
    done = [has_succeeded(worker) for worker in waited.workers]
    return 0 if (any(done) if any_ else all(done)) else 1


def result(worker: WorkerArgument, *, json: JsonOption = False) -> int:
    """Show the result of a worker's task, and what was verified.

    Exits 0 if it was completed and not refuted, 1 if not.
    """
    with open_daemon_client() as through:
        found = find_worker(worker, through)
        told = through.call("worker_result", WorkerRequest(worker_id=found), Result)
        cwd = "" if json else status_of(found, through).cwd
    if json:
        print_json(told)
    else:
        show_result(told, cwd=cwd, text=True)
    return result_exit_code(told)


def answer(
    worker: WorkerArgument,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[QUESTION] ANSWER",
            help="allow_once, allow_always or reject (or y, a, n). The question's id may be "
            "omitted while only one is open.",
            show_default=False,
        ),
    ],
    *,
    message: Annotated[
        str, typer.Option("--message", "-m", help="With reject: what to do instead.")
    ] = "",
    json: JsonOption = False,
) -> int:
    """Answer a worker's permission question. The first answer wins.

    A reject ends the turn and leaves the worker open; with --message the turn continues.
    """
    *named, given = words
    option = ANSWERS.get(given)
    if option in ("allow_once", "allow_always") and message.strip():
        raise CommandError(f"--message works only with reject, and the answer is {option}", 2)
    if option is None or len(named) > 1:
        said = " ".join(words)
        raise CommandError(
            f"{said!r} is not an answer: give allow_once, allow_always or reject (y, a or n), "
            "after the question's id if several are open",
            2,
        )
    with open_daemon_client() as through:
        found = find_worker(worker, through)
        question = named[0] if named else _only_question(found, through)
        request = AnswerRequest(
            worker_id=found, permission_id=question, option=option, message=message
        )
        answered = through.call("worker_answer", request, AnswerReply)
    if json:
        print_json(answered)
    else:
        print(f"{found} {badge(answered.state, answered.evidence).words}")
        if answered.message_passed is False:
            print_notice(MESSAGE_NOT_PASSED.format(found))
    return 0


def _only_question(worker: str, through: DaemonClient) -> str:
    now = status_of(worker, through)
    if now.permission is None:
        raise CommandError(f"{worker} is {now.state} and has no open question", 2)
    if now.questions > 1:
        raise CommandError(
            f"{worker} has {now.questions} open questions; the first is {now.permission.id!r}: "
            "name one of them",
            2,
        )
    return now.permission.id


def cancel(
    worker: WorkerArgument,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    close: Annotated[
        bool, typer.Option("--close", help="Also close it, so that it takes no more prompts.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Stop a worker's turn; its work so far is kept and shown."""
    with open_daemon_client() as through:
        found = find_worker(worker, through)
        request = CancelRequest(worker_id=found, reason=reason, close=close)
        cancelled = through.call("worker_cancel", request, CancelReply)
        cwd = "" if json else status_of(found, through).cwd
    if json:
        print_json(cancelled)
    else:
        show_result(cancelled.result, cwd=cwd, text=True)
    return 0
