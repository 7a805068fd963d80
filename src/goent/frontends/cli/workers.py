"""The commands about workers that are there already."""

import sys
import time
from typing import Annotated, get_args

import typer

from goent.core.transcript import WANTED, render, turn_end
from goent.domain.events import AnyEvent, TextDelta, Thought, TurnEnded, WorkerClosed
from goent.domain.question_text import in_line
from goent.domain.replies import Answered, Cancelled, Output, Result, Waited, WorkerList
from goent.domain.requests import (
    MAX_WAIT_S,
    AnswerRequest,
    CancelRequest,
    ListRequest,
    OutputFilter,
    OutputRequest,
    WaitRequest,
    WorkerRequest,
)
from goent.domain.types import ENDED, Answer, State
from goent.frontends.cli.asking import ASIDE, NOT_PASSED
from goent.frontends.cli.badge import badge
from goent.frontends.cli.client import (
    MOST_WORKERS,
    Daemon,
    Gone,
    Trouble,
    cursor_before,
    daemon,
    find_worker,
    status_of,
    what_to_do,
)
from goent.frontends.cli.options import Json, Worker
from goent.frontends.cli.screen import Screen, clean, complain, lines, print_text
from goent.frontends.cli.show import (
    exit_code,
    is_done,
    print_json,
    show_result,
    show_status,
    show_workers,
)

PAGE = 100_000
A_WHILE = 3600.0
ANSWERS: dict[str, Answer] = {
    **{option: option for option in get_args(Answer)},
    "y": "allow_once",
    "a": "allow_always",
    "n": "reject",
}


def ps(
    *,
    all_: Annotated[bool, typer.Option("--all", "-a", help="The newest 200, not 20.")] = False,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only those of this provider.")] = None,
    json: Json = False,
) -> int:
    """List the workers of this project, newest first."""
    request = ListRequest(state=state, provider=provider, limit=MOST_WORKERS if all_ else 20)
    with daemon() as through:
        workers = through.call("worker_list", request, WorkerList)
    if json:
        print_json(workers)
    else:
        show_workers(workers.workers, hidden=workers.total - len(workers.workers))
    return 0


def status(worker: Worker, *, json: Json = False) -> int:
    """Show how a worker stands: state, step, progress, cost, open question."""
    with daemon() as through:
        now = status_of(find_worker(worker, through), through)
    if json:
        print_json(now)
    else:
        show_status(now)
    return 0


def output(
    worker: Worker,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until its turn ends.")
    ] = False,
    since: Annotated[
        int, typer.Option(metavar="CURSOR", help="Only what came after this cursor.", min=0)
    ] = 0,
    filter_: Annotated[OutputFilter, typer.Option("--filter", help="Which part of it.")] = "all",
    json: Json = False,
) -> int:
    """Print what a worker said and did.

    With --json each page is one object on a line of its own; its cursor continues it.
    """
    with daemon() as through:
        found = find_worker(worker, through)
        now = status_of(found, through)
        if follow and now.state not in ENDED:
            after = since or cursor_before(found, through)
            through.watch(found, after=after)
            try:
                _follow(through, found, filter_, json=json, since=since)
            except Gone as gone:
                raise Gone(
                    f"{gone.why}, and the turn of {found} with it; {what_to_do(found)}"
                ) from None
        else:
            _print_pages(through, found, since, filter_, json=json)
    return 0


def _print_pages(
    through: Daemon, worker: str, after: int, kind: OutputFilter, *, json: bool
) -> int:
    """Print what there is; returns the cursor behind it."""
    more = True
    while more:
        request = OutputRequest(worker_id=worker, cursor=after, limit=PAGE, filter=kind)
        page = through.call("worker_output", request, Output)
        if json:
            _print_line(page)
        elif page.text:
            _print_page(page)
        more = page.more and page.cursor > after
        after = page.cursor
    return after


def _print_page(page: Output) -> None:
    """The text; if it ends with the end of the last turn, that is in its colour."""
    end = turn_end(page.state, page.evidence)
    before = page.text.removesuffix(end)
    if before == page.text:
        print(clean(page.text), flush=True)
        return
    print(clean(before), end="", flush=True)
    print_text(end, badge(page.state, page.evidence).style)
    sys.stdout.flush()


def _print_line(page: Output) -> None:
    import msgspec  # noqa: PLC0415 (only here, and it is loaded already)

    sys.stdout.buffer.write(msgspec.json.encode(page) + b"\n")
    sys.stdout.flush()


def _follow(through: Daemon, worker: str, kind: OutputFilter, *, json: bool, since: int) -> None:
    message: tuple[type, str] | None = None
    with lines() as screen:
        while True:
            for envelope in through.events(A_WHILE):
                event = envelope.event
                if not json and isinstance(event, WANTED[kind]):
                    message = _print_event(screen, event, message)
                if isinstance(event, TurnEnded | WorkerClosed):
                    if json:
                        _print_pages(through, worker, since, kind, json=True)
                    return
            if json:
                since = _print_pages(through, worker, since, kind, json=True)


def _print_event(
    screen: Screen, event: AnyEvent, last: tuple[type, str] | None
) -> tuple[type, str] | None:
    """Words of one message go on where they left off; everything else is a line."""
    if isinstance(event, TextDelta | Thought):
        message = (type(event), event.message)
        if message != last:
            screen.end_words()
        screen.words(event.text)
        return message
    if isinstance(event, TurnEnded):
        screen.end_words()
        print_text(render(event), badge(event.state, event.evidence).style)
        return None
    if text := render(event):
        screen.line(text)
        return None
    return last


def wait(
    workers: Annotated[
        list[str], typer.Argument(metavar="WORKER...", help="Ids, or 'last'.", show_default=False)
    ],
    *,
    any_: Annotated[bool, typer.Option("--any", help="Return when the first one ends.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up after this long (default: never).", min=0),
    ] = None,
    json: Json = False,
) -> int:
    """Wait until workers end their turn, or one of them asks something.

    Exits 0 if what was waited for was completed and not refuted, 1 if not.
    """
    with daemon() as through:
        found = tuple(find_worker(worker, through) for worker in workers)
        waited = _wait(through, found, any_=any_, seconds=timeout)
    if json:
        print_json(waited)
    else:
        show_workers(waited.workers)
    for worker in waited.workers:
        if worker.permission and not json:
            asks = f"{worker.worker_id} asks for {worker.permission.tool}"
            how = f"go-ent answer {worker.worker_id} {worker.permission.id} allow_once"
            complain(f"{asks}: {in_line(worker.permission.detail, ASIDE)}; {how}")
    done = [is_done(worker) for worker in waited.workers]
    return 0 if (any(done) if any_ else all(done)) else 1


def _wait(
    through: Daemon, workers: tuple[str, ...], *, any_: bool, seconds: float | None
) -> Waited:
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = MAX_WAIT_S if deadline is None else deadline - time.monotonic()
        request = WaitRequest(
            worker_ids=workers, any=any_, timeout_s=min(MAX_WAIT_S, max(0.0, left))
        )
        waited = through.call("worker_wait", request, Waited)
        if not waited.timed_out:
            return waited
        if deadline is not None and time.monotonic() >= deadline:
            complain(f"not done after {seconds:g} s")
            return waited


def result(worker: Worker, *, json: Json = False) -> int:
    """Show what came of a worker's task, and what was verified.

    Exits 0 if it was completed and not refuted, 1 if not.
    """
    with daemon() as through:
        found = find_worker(worker, through)
        told = through.call("worker_result", WorkerRequest(worker_id=found), Result)
        cwd = "" if json else status_of(found, through).cwd
    if json:
        print_json(told)
    else:
        show_result(told, cwd=cwd, text=True)
    return exit_code(told)


def answer(
    worker: Worker,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[QUESTION] ANSWER",
            help="allow_once, allow_always or reject (or y, a, n). The question's id may be "
            "left out while only one is open.",
            show_default=False,
        ),
    ],
    *,
    message: Annotated[
        str, typer.Option("--message", "-m", help="With reject: what to do instead.")
    ] = "",
    json: Json = False,
) -> int:
    """Answer a worker's permission question. The first answer wins.

    A reject ends the turn and leaves the worker open; with --message the turn goes on.
    """
    *named, given = words
    option = ANSWERS.get(given)
    if option in ("allow_once", "allow_always") and message.strip():
        raise Trouble(f"--message goes only with reject, and the answer is {option}", 2)
    if option is None or len(named) > 1:
        said = " ".join(words)
        raise Trouble(f"{said!r} is no answer: [QUESTION] allow_once|allow_always|reject", 2)
    with daemon() as through:
        found = find_worker(worker, through)
        question = named[0] if named else _only_question(found, through)
        request = AnswerRequest(
            worker_id=found, permission_id=question, option=option, message=message
        )
        answered = through.call("worker_answer", request, Answered)
    if json:
        print_json(answered)
    else:
        print(f"{found} {badge(answered.state, answered.evidence).words}")
        if answered.message_passed is False:
            complain(NOT_PASSED.format(found))
    return 0


def _only_question(worker: str, through: Daemon) -> str:
    now = status_of(worker, through)
    if now.permission is None:
        raise Trouble(f"{worker} is {now.state} and asks nothing", 2)
    if now.questions > 1:
        raise Trouble(
            f"{worker} has {now.questions} open questions; the first is {now.permission.id!r}: "
            "name the one you mean",
            2,
        )
    return now.permission.id


def cancel(
    worker: Worker,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    close: Annotated[bool, typer.Option("--close", help="Also close it for good.")] = False,
    json: Json = False,
) -> int:
    """Stop a worker's turn; what it had done so far is kept and shown."""
    with daemon() as through:
        found = find_worker(worker, through)
        request = CancelRequest(worker_id=found, reason=reason, close=close)
        cancelled = through.call("worker_cancel", request, Cancelled)
        cwd = "" if json else status_of(found, through).cwd
    if json:
        print_json(cancelled)
    else:
        show_result(cancelled.result, cwd=cwd, text=True)
    return 0
