"""Prints results, tables and costs for people, and JSON for programs."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from goent.cli import drawing
from goent.cli.labels import (
    Badge,
    age,
    badge,
    call_count,
    duration,
    lines_changed,
    money,
    progress_bar,
    relative_path,
    short_number,
)
from goent.cli.terminal import make_console, strip_controls
from goent.cli.terminal_prompt import DIFF_TOOLS, diff_style
from goent.domain.replies import BudgetLine, CostLine, Costs, Question, Result, Status, WorkerLine
from goent.domain.types import (
    ENDED_STATES,
    AlsoChanged,
    BudgetScope,
    Check,
    Evidence,
    Failure,
    Overlap,
)
from goent.domain.verification import quote_worker_text

CELL_STYLES = {
    "ready": "green",
    "direct": "green",
    "no_key": "yellow",
    "unknown": "yellow",
    "failing": "yellow",
    "limited": "yellow",
    "down": "red",
    "refused": "red",
    "no_credit": "red",
}
EVIDENCE_LABELS: dict[Evidence, str] = {
    "claimed": "claimed: nothing was checked; pass --verify to check",
    "verified": "verified",
    "refuted": "refuted: a check failed",
}
T = TypeVar("T")
S = TypeVar("S", bound=Struct)
TASK_WIDTH = 50
STEP_WIDTH = 40
QUESTION_WIDTH = 200  # a question was already shortened, in the middle


def print_json(value: Struct | None) -> None:
    """The API's fields, indented for people, whole for programs."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()


def print_reply(reply: S, show: Callable[[S], None], *, json: bool) -> None:
    if json:
        print_json(reply)
    else:
        show(reply)


def show_workers(workers: Sequence[WorkerLine | Status], *, hidden: int = 0) -> None:
    if not workers:
        print("no workers; `go-ent run TASK` starts one")
        return
    heads = ("WORKER", "STATE", "MODEL", "STEP", "TOKENS", "COST", "AGE", "TASK")
    show_table(heads, map(_worker_row, workers))
    for worker in workers:
        if isinstance(worker, WorkerLine) and worker.overlaps:
            met = ", ".join(worker.overlaps)
            print(f"! {worker.worker_id} and {met} changed the same files at the same time")
    if hidden:
        print(f"{hidden} older ones; `go-ent ps --all` shows more")


def _worker_row(worker: WorkerLine | Status) -> "Sequence[str | drawing.Text]":
    tokens = worker.tokens if isinstance(worker, WorkerLine) else worker.usage.total
    shown = badge(worker.state, worker.evidence)
    closed = "" if worker.open else ", closed"
    step_width = QUESTION_WIDTH if worker.permission else STEP_WIDTH
    percent = worker.progress.percent
    step = f"{percent}% {worker.step}" if percent is not None else worker.step
    return (
        worker.worker_id,
        styled_cell(shown.text + closed, shown.style),
        worker.provider,
        "" if worker.state in ENDED_STATES else _shorten(step, step_width),
        short_number(tokens),
        "-" if not tokens else money(worker.cost_usd),
        age(worker.started_at),
        _shorten(worker.task, TASK_WIDTH),
    )


def show_status(worker: Status) -> None:
    cost = money(worker.cost_usd) if worker.usage.total else "nothing metered yet"
    rows: list[tuple[str, str | drawing.Text]] = [
        ("state", worker.state + ("" if worker.open else ", closed")),
        ("evidence", EVIDENCE_LABELS[worker.evidence] if worker.evidence else ""),
        ("step", worker.step if worker.step != worker.state else ""),
        (
            "progress",
            "" if worker.progress.percent is None else progress_bar(worker.progress.percent),
        ),
        ("model", f"{worker.provider} ({worker.model}, {worker.method})"),
        ("cwd", worker.cwd),
        ("task", worker.task),
        ("turn", str(worker.turn)),
        ("cost", f"{short_number(worker.usage.total)} tokens, {cost}"),
        ("started", f"{age(worker.started_at)} ago, last event {age(worker.updated_at)} ago"),
        ("failure", failure_text(worker.failure)),
    ]
    if question := worker.permission:
        options = "|".join(option.id for option in question.options)
        left = question.seconds_left
        rows += [
            ("question", _question_text(question)),
            ("reason", question.reason),
            ("always", question.always),
            ("time left", "" if left is None else f"{duration(left)}; then the answer is no"),
            ("answer", f"go-ent answer {worker.worker_id} {question.id} {options}"),
        ]
    _show_titled(worker.worker_id, badge(worker.state, worker.evidence), rows)


def _question_text(question: Question) -> "drawing.Text":
    """Whole, an edit in the colours of a diff."""
    head, *more = f"{question.tool}: {question.shown or question.detail}".split("\n")
    drawn = drawing.Text(strip_controls(head))
    for line in more:
        drawn.append(
            "\n" + strip_controls(line), diff_style(line) if question.tool in DIFF_TOOLS else ""
        )
    return drawn


def show_result(result: Result, *, cwd: str, text: bool) -> None:
    """A worker's result; `text` unless its messages were shown already."""
    if text and result.text:
        print(strip_controls(quote_worker_text(result.text)))
        print()
    rows = [
        ("evidence", EVIDENCE_LABELS[result.evidence] if result.evidence else ""),
        *_listed("files", (_file_text(f.path, f.added, f.removed, cwd) for f in result.files)),
        *_listed("also changed", (_also_changed_text(a, cwd) for a in result.also_changed)),
        *_listed("overlaps", (_overlap_text(o, cwd) for o in result.overlaps)),
        *_listed("commands", (_command_text(c.command, c.exit) for c in result.commands)),
        *_listed("verify", map(check_text, result.verify)),
        ("cost", _cost_breakdown(result)),
        *(("moved", f"{m.from_provider} -> {m.to_provider}: {m.reason}") for m in result.failovers),
        ("failure", failure_text(result.failure)),
        *_listed("note", result.notes),
    ]
    _show_titled(result.worker_id, badge(result.state, result.evidence), rows)
    for change in result.guarded_changes:
        line = f"  ! {change.path} changed while this worker worked: {change.reason}"
        make_console().print(styled_cell(line, "yellow"))


def has_succeeded(worker: Status | Result) -> bool:
    """Its turn completed and was not refuted."""
    return worker.state == "completed" and worker.evidence != "refuted"


def result_exit_code(result: Result) -> int:
    """The exit code of a command about one worker's result."""
    if result.failure and result.failure.kind in ("environment", "internal"):
        return 3
    return 0 if has_succeeded(result) else 1


def _listed(name: str, texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Rows of which only the first has the name."""
    return ((" " if at else name, text) for at, text in enumerate(texts))


def _file_text(path: str, added: int | None, removed: int | None, cwd: str) -> str:
    return f"{relative_path(path, cwd)}  {lines_changed(added, removed)}"


def _also_changed_text(change: AlsoChanged, cwd: str) -> str:
    """With those who may have changed it, if known."""
    by = " or ".join(change.by)
    who = f"  by {by}" if len(change.by) == 1 else f"  by {by} or somebody else" if by else ""
    return f"{relative_path(change.path, cwd)}{who}"


def _overlap_text(overlap: Overlap, cwd: str) -> str:
    lost = ": one overwrote lines of the other" if overlap.kind == "hunk_conflict" else ""
    return f"{relative_path(overlap.path, cwd)}  with {overlap.worker_id}{lost}"


def _command_text(command: str, code: int | None) -> str:
    return f"{_shorten(command, 100)}  ({'no exit code' if code is None else f'exit {code}'})"


def check_text(check: Check) -> str:
    """A verify command, and how it ended."""
    if check.exit == 0:
        return f"✓ {check.command}"
    how = "did not end in time" if check.exit is None else f"exit {check.exit}"
    return f"✗ {check.command} ({how}) {check.tail.strip()}"


def _cost_breakdown(result: Result) -> str:
    if not result.models_used:
        return ""
    parts = [
        f"{use.provider} {money(use.cost_usd)} ({call_count(use.calls)}, {short_number(use.usage.total)} tokens)"
        for use in result.models_used
    ]
    total = f"{money(result.cost_usd)} = " if len(parts) > 1 else ""
    return total + " + ".join(parts)


# The others need a change first: a server started, an address corrected, more time granted.
TEMPORARY_FAILURES = frozenset(
    {
        "rate_limited",
        "provider_timeout",
        "provider_overloaded",
        "worker_crashed",
        "stalled",
        "empty_turn",
    }
)


def failure_text(failure: Failure | None) -> str:
    """Why it failed, and what may help."""
    if failure is None:
        return ""
    remedy = f"; retry with {failure.retry_with}" if failure.retry_with else ""
    if failure.retryable and not remedy and failure.kind in TEMPORARY_FAILURES:
        remedy = "; a retry may help"
    return f"{failure.kind}: {failure.message}{remedy}"


def show_table(heads: Sequence[str], rows: "Iterable[Sequence[str | drawing.Text]]") -> None:

    table = drawing.Table(
        *heads, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    for row in rows:
        table.add_row(*(_styled_state(value) if isinstance(value, str) else value for value in row))
    print_renderable(make_console(), table)


def _styled_state(value: str) -> "drawing.Text":
    return styled_cell(value, CELL_STYLES.get(value.partition(",")[0], ""))


def styled_cell(value: str, style: str) -> "drawing.Text":
    """A cell of a table."""
    return drawing.Text(strip_controls(value), style=style, overflow="fold")


def _show_titled(head: str, shown: Badge, rows: "Iterable[tuple[str, str | drawing.Text]]") -> None:

    title = drawing.Text(f"{shown.mark} {head} {shown.words}", style=shown.title_style)
    make_console().print(title)
    show_rows(rows)


def show_rows(rows: "Iterable[tuple[str, str | drawing.Text]]") -> None:
    """Names and values; rows without a value are left out."""
    table = drawing.Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            drawn = drawing.Text(strip_controls(value)) if isinstance(value, str) else value
            table.add_row(f"  {name}", drawn)
    print_renderable(make_console(), table)


def print_renderable(console: "drawing.Console", drawn: "drawing.RenderableType") -> None:
    """Print it without the spaces that rich pads lines with, which do not belong in a file."""
    with console.capture() as captured:
        console.print(drawn)
    text = captured.get()
    sys.stdout.write(text if console.is_terminal else re.sub(r" +$", "", text, flags=re.MULTILINE))


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


MAX_BAR: Final = 24  # cells of the longest bar, where there is room
MIN_BAR: Final = 6
COLUMN_GAP: Final = 2
BAR_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
BUDGET_SCOPES: Final[Mapping[BudgetScope, str]] = {
    "task": "for the task",
    "group": "for the group",
    "day": "a day",
    "project": "for the project",
}
UNKNOWN_MARK: Final = "?"  # at the end of a bar that may be too short


def show_costs(costs: Costs) -> None:
    """Days in order, anything else by cost; unknown costs have no bar."""
    if not costs.rows:
        print("nothing spent yet")
        _show_budgets(costs.budgets)
        return

    console = make_console()
    lines = (
        costs.rows
        if costs.by == "day"
        else sorted(costs.rows, key=lambda line: (-line.known_usd, line.key))
    )
    cells = [_cost_cells(line) for line in lines] + [_total_cells(costs)]
    heads = (costs.by.upper(), "CALLS", "TOKENS", "COST")
    used = sum(max(map(len, column)) + COLUMN_GAP for column in zip(heads, *cells, strict=True))
    bars = _cost_bars(lines, min(MAX_BAR, console.width - used - len(UNKNOWN_MARK)))

    table = drawing.Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, COLUMN_GAP, 0, 0)
    )
    for head, justify in zip(heads, ("left", "right", "right", "left"), strict=True):
        table.add_column(head, justify=justify, overflow="fold")
    table.add_column("", no_wrap=True)
    for row, bar in zip(cells, [*bars, ""], strict=True):
        table.add_row(*map(drawing.Text, row), drawing.Text(bar, style="cyan"))
    print_renderable(console, table)
    if costs.unknown_calls:
        print(
            f"the cost of {call_count(costs.unknown_calls)} is unknown: interrupted before usage was "
            "reported, or the model has no price (set one in .goent/providers.yaml)"
        )
    _show_budgets(costs.budgets)


def _show_budgets(budgets: Sequence[BudgetLine]) -> None:
    for line in budgets:
        held = f", {money(line.held_usd)} reserved for running work" if line.held_usd else ""
        kind = "hard" if line.hard else "soft"
        left = f"{money(line.left_usd)} left" if line.left_usd >= 0 else "exceeded"
        unknown = (
            f"; {call_count(line.unknown_calls)} without a price" if line.unknown_calls else ""
        )
        of = f"{money(line.limit_usd)} {BUDGET_SCOPES[line.scope]}"
        print(f"{kind} budget: {money(line.spent_usd)} of {of}{held}, {left}{unknown}")


def _cost_cells(line: CostLine) -> tuple[str, ...]:
    return (
        strip_controls(line.key),
        str(line.calls),
        short_number(line.usage.total),
        _amount_text(line.cost_usd, line.known_usd),
    )


def _total_cells(costs: Costs) -> tuple[str, ...]:
    made = sum(line.calls for line in costs.rows)
    tokens = sum(line.usage.total for line in costs.rows)
    return "total", str(made), short_number(tokens), _amount_text(costs.total_usd, costs.known_usd)


def _amount_text(usd: float | None, known: float) -> str:
    if usd is not None:
        return money(usd)
    return f"unknown (at least {money(known)})" if known else "unknown"


def _cost_bars(lines: Sequence[CostLine], width: int) -> list[str]:
    most = max(line.known_usd for line in lines)
    if width < MIN_BAR or not most:
        return [""] * len(lines)
    return [
        _cost_bar(line.known_usd / most, width) + (UNKNOWN_MARK if line.unknown_calls else "")
        for line in lines
    ]


def _cost_bar(share: float, width: int) -> str:
    whole, eighths = divmod(round(share * width * 8), 8)
    if not whole and not eighths and share:
        eighths = 1  # a little is not nothing
    return "█" * whole + BAR_EIGHTHS[eighths].strip()
