"""How do results and tables look to a person?"""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from goent.domain.replies import Question, Result, Status, WorkerLine
from goent.domain.types import ENDED, AlsoChanged, Check, Evidence, Failure, Overlap
from goent.domain.verification import quoted
from goent.frontends.cli.asking import DIFFS, line_style
from goent.frontends.cli.badge import Badge, badge
from goent.frontends.cli.screen import clean, make_console
from goent.frontends.cli.words import ago, bar, calls, count, duration, lines_changed, money, near

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

STYLES = {
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
EVIDENCE: dict[Evidence, str] = {
    "claimed": "claimed: nothing was checked, pass --verify to check",
    "verified": "verified",
    "refuted": "refuted: it is not done",
}
T = TypeVar("T")
TASK_WIDTH = 50
STEP_WIDTH = 40
ASKING_WIDTH = 200  # a question's end is not cut off: it was shortened in the middle already


def print_json(value: Struct | None) -> None:
    """The API's fields, indented for people, whole for programs."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.buffer.write(text + b"\n")
    sys.stdout.flush()


def show_workers(workers: Sequence[WorkerLine | Status], *, hidden: int = 0) -> None:
    if not workers:
        print("no workers; `go-ent run TASK` makes one")
        return
    heads = ("WORKER", "STATE", "MODEL", "STEP", "TOKENS", "COST", "AGE", "TASK")
    show_table(heads, map(_worker_row, workers))
    for worker in workers:
        if isinstance(worker, WorkerLine) and worker.overlaps:
            met = ", ".join(worker.overlaps)
            print(f"! {worker.worker_id} and {met} changed the same files at the same time")
    if hidden:
        print(f"{hidden} older ones; `go-ent ps --all` shows more")


def _worker_row(worker: WorkerLine | Status) -> "Sequence[str | Text]":
    tokens = worker.tokens if isinstance(worker, WorkerLine) else worker.usage.total
    shown = badge(worker.state, worker.evidence)
    closed = "" if worker.open else ", closed"
    step_width = ASKING_WIDTH if worker.permission else STEP_WIDTH
    percent = worker.progress.percent
    step = f"{percent}% {worker.step}" if percent is not None else worker.step
    return (
        worker.worker_id,
        styled(shown.text + closed, shown.style),
        worker.provider,
        "" if worker.state in ENDED else _short(step, step_width),
        count(tokens),
        "-" if not tokens else money(worker.cost_usd),
        ago(worker.started_at),
        _short(worker.task, TASK_WIDTH),
    )


def show_status(worker: Status) -> None:
    rows: list[tuple[str, str | Text]] = [
        ("state", worker.state + ("" if worker.open else ", closed")),
        ("evidence", EVIDENCE[worker.evidence] if worker.evidence else ""),
        ("step", worker.step if worker.step != worker.state else ""),
        ("progress", "" if worker.progress.percent is None else bar(worker.progress.percent)),
        ("model", f"{worker.provider} ({worker.model}, {worker.method})"),
        ("cwd", worker.cwd),
        ("task", worker.task),
        ("turn", str(worker.turn)),
        ("cost", f"{count(worker.usage.total)} tokens, {_cost(worker)}"),
        ("started", f"{ago(worker.started_at)} ago, last heard of {ago(worker.updated_at)} ago"),
        ("failure", failure_words(worker.failure)),
    ]
    if question := worker.permission:
        options = "|".join(option.id for option in question.options)
        left = question.seconds_left
        rows += [
            ("question", _question(question)),
            ("reason", question.reason),
            ("always", question.always),
            ("time left", "" if left is None else f"{duration(left)}; then the answer is no"),
            ("answer", f"go-ent answer {worker.worker_id} {question.id} {options}"),
        ]
    _show_titled(worker.worker_id, badge(worker.state, worker.evidence), rows)


def _question(question: Question) -> "Text":
    """Whole, an edit in the colours of a diff."""
    from rich.text import Text  # noqa: PLC0415 (rich is loaded only where something is drawn)

    head, *more = f"{question.tool}: {question.shown or question.detail}".split("\n")
    drawn = Text(clean(head))
    for line in more:
        drawn.append("\n" + clean(line), line_style(line) if question.tool in DIFFS else "")
    return drawn


def _cost(worker: Status) -> str:
    return money(worker.cost_usd) if worker.usage.total else "nothing metered yet"


def show_result(result: Result, *, cwd: str, text: bool) -> None:
    """What came of the task; `text` if the worker's words were not shown already."""
    if text and result.text:
        print(clean(quoted(result.text)))
        print()
    verdict = EVIDENCE[result.evidence] if result.evidence else ""
    rows = [
        ("evidence", verdict),
        *((_head("files", i), _file(f.path, f.added, f.removed, cwd)) for i, f in _n(result.files)),
        *((_head("also changed", i), _also(a, cwd)) for i, a in _n(result.also_changed)),
        *((_head("overlaps", i), _overlap(o, cwd)) for i, o in _n(result.overlaps)),
        *((_head("commands", i), _ran(c.command, c.exit)) for i, c in _n(result.commands)),
        *((_head("verify", i), checked(check)) for i, check in _n(result.verify)),
        ("cost", _bill(result)),
        *(("moved", f"{m.from_provider} -> {m.to_provider}: {m.reason}") for m in result.failovers),
        ("failure", failure_words(result.failure)),
        *((_head("note", i), note) for i, note in _n(result.notes)),
    ]
    _show_titled(result.worker_id, badge(result.state, result.evidence), rows)
    for change in result.guarded_changes:
        told = f"  ! {change.path} changed while this worker worked: {change.reason}"
        make_console().print(styled(told, "yellow"))


def is_done(worker: Status | Result) -> bool:
    """Its turn completed, and nothing refutes it."""
    return worker.state == "completed" and worker.evidence != "refuted"


def exit_code(result: Result) -> int:
    """The exit code of a command about one worker's result."""
    if result.failure and result.failure.kind in ("environment", "internal"):
        return 3
    return 0 if is_done(result) else 1


def _n(values: Iterable[T]) -> Iterable[tuple[int, T]]:
    return enumerate(values)


def _head(name: str, index: int) -> str:
    return name if index == 0 else " "


def _file(path: str, added: int | None, removed: int | None, cwd: str) -> str:
    return f"{near(path, cwd)}  {lines_changed(added, removed)}"


def _also(change: AlsoChanged, cwd: str) -> str:
    """Who can have done it, if that is known."""
    by = " or ".join(change.by)
    who = f"  by {by}" if len(change.by) == 1 else f"  by {by} or somebody else" if by else ""
    return f"{near(change.path, cwd)}{who}"


def _overlap(overlap: Overlap, cwd: str) -> str:
    lost = ": one overwrote lines of the other" if overlap.kind == "hunk_conflict" else ""
    return f"{near(overlap.path, cwd)}  with {overlap.worker_id}{lost}"


def _ran(command: str, code: int | None) -> str:
    return f"{_short(command, 100)}  ({'no exit code' if code is None else f'exit {code}'})"


def checked(check: Check) -> str:
    """A verify command, and how it ended."""
    if check.exit == 0:
        return f"✓ {check.command}"
    how = "did not end in time" if check.exit is None else f"exit {check.exit}"
    return f"✗ {check.command} ({how}) {check.tail.strip()}"


def _bill(result: Result) -> str:
    if not result.models_used:
        return ""
    parts = [
        f"{use.provider} {money(use.cost_usd)} ({calls(use.calls)}, {count(use.usage.total)} tokens)"
        for use in result.models_used
    ]
    total = f"{money(result.cost_usd)} = " if len(parts) > 1 else ""
    return total + " + ".join(parts)


def failure_words(failure: Failure | None) -> str:
    """Why it failed, and what may help."""
    if failure is None:
        return ""
    remedy = f"; retry with {failure.retry_with}" if failure.retry_with else ""
    if failure.retryable and not remedy:
        remedy = "; trying again may help"
    return f"{failure.kind}: {failure.message}{remedy}"


def show_table(heads: Sequence[str], rows: "Iterable[Sequence[str | Text]]") -> None:
    from rich.table import Table  # noqa: PLC0415 (rich is loaded only where something is drawn)

    table = Table(*heads, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(_cell(value) if isinstance(value, str) else value for value in row))
    print_drawn(make_console(), table)


def _cell(value: str) -> "Text":
    return styled(value, STYLES.get(value.partition(",")[0], ""))


def styled(value: str, style: str) -> "Text":
    """A cell of a table."""
    from rich.text import Text  # noqa: PLC0415 (the same)

    return Text(clean(value), style=style, overflow="fold")


def _show_titled(head: str, shown: Badge, rows: "Iterable[tuple[str, str | Text]]") -> None:
    from rich.text import Text  # noqa: PLC0415 (the same)

    title = Text(f"{shown.mark} {head} {shown.words}", style=shown.title_style)
    make_console().print(title)
    show_rows(rows)


def show_rows(rows: "Iterable[tuple[str, str | Text]]") -> None:
    """Names and values, but for those without a value."""
    from rich.table import Table  # noqa: PLC0415 (the same)
    from rich.text import Text  # noqa: PLC0415 (the same)

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            drawn = Text(clean(value)) if isinstance(value, str) else value
            table.add_row(f"  {name}", drawn)
    print_drawn(make_console(), table)


def print_drawn(console: "Console", drawn: "RenderableType") -> None:
    """Rich fills lines up with spaces; nobody wants those in a file."""
    with console.capture() as captured:
        console.print(drawn)
    text = captured.get()
    sys.stdout.write(text if console.is_terminal else re.sub(r" +$", "", text, flags=re.MULTILINE))


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
