"""Draws swarms: the table while one runs, its summary, its conflicts and its merge."""

from collections.abc import Mapping, Sequence
from typing import Final

from goent.cli import drawing
from goent.cli.board import WIDE_TERMINAL, BoardRow, bar_line, board_table, styled_line
from goent.cli.display import (
    check_text,
    failure_text,
    print_renderable,
    show_rows,
    show_table,
    styled_cell,
)
from goent.cli.labels import age, badge, duration, lines_changed, money, short_number
from goent.cli.terminal import make_console, print_text, strip_controls
from goent.domain.swarm_messages import (
    ENDED_TASK_STATES,
    LeftOver,
    SwarmList,
    SwarmMergeReply,
    SwarmResult,
    SwarmStatus,
    TaskLine,
    TaskState,
)
from goent.domain.types import Failure, Value
from goent.domain.workspace import Conflict, ConflictKind

# Where there is no room for all rows, those that may need attention come first.
STATE_RANKS: Final[Mapping[TaskState, int]] = {
    "waiting": 0,
    "failed": 1,
    "running": 2,
    "starting": 3,
    "blocked": 4,
    "cancelled": 5,
    "pending": 6,
    "completed": 7,
}
RIGHT_ALIGNED: Final = frozenset({"files", "tokens", "cost", "time"})
ROWS_AROUND: Final = 3  # lines beside the rows: heads, the bar, the keys
MIN_ROWS: Final = 3


class DrawingSize(Value, frozen=True, kw_only=True):
    """The room for drawing. `height` None: as much as is needed."""

    width: int
    height: int | None = None


def swarm_table(now: SwarmStatus, room: DrawingSize, keys: str = "") -> "drawing.RenderableType":
    """The tasks, the bar, and the keys that answer an open question."""
    tasks, hidden = _fitting_tasks(now.tasks, room.height)
    rows = [_board_row(task, roomy=room.width >= WIDE_TERMINAL) for task in tasks]
    below = [drawing.Text(f"  … and {hidden}", style="dim")] if hidden else []
    foot = [styled_line((strip_controls(keys), "bold yellow"))] if keys else []
    return drawing.Group(
        board_table(rows, room.width, "task"), *below, foot_line(now, room.width), *foot
    )


def foot_line(now: SwarmStatus, width: int) -> "drawing.Text":
    """How far the swarm is, its cost and time, behind a bar of verified, claimed, failed and running."""
    verified = sum(task.state == "completed" and task.evidence == "verified" for task in now.tasks)
    well = sum(task.state == "completed" and task.evidence != "refuted" for task in now.tasks)
    over = sum(task.state in ENDED_TASK_STATES for task in now.tasks)
    begun = sum(task.state not in {*ENDED_TASK_STATES, "pending"} for task in now.tasks)
    shares = (
        (verified, "█", "green"),
        (well - verified, "█", ""),
        (over - well, "█", "red"),
        (begun, "▒", "cyan"),
    )
    words = f"{now.done}/{now.total} · {' · '.join(_foot_parts(now))}"
    return bar_line(shares, len(now.tasks), words, width)


def _foot_parts(now: SwarmStatus) -> Sequence[str]:
    known = now.cost_usd is not None
    spent = money(now.cost_usd) if known else "cost unknown"
    between = " of" if known else ", budget"
    budget = f"{between} {money(now.budget_usd)}" if now.budget_usd is not None else ""
    asking = sum(task.state == "waiting" for task in now.tasks)
    questions = f"{asking} question{'s' * (asking > 1)} open" if asking else ""
    return [part for part in (spent + budget, duration(now.seconds), questions) if part]


def _fitting_tasks(tasks: Sequence[TaskLine], height: int | None) -> tuple[Sequence[TaskLine], str]:
    """The rows that there is room for, in their order, and counts of the others."""
    if height is None or len(tasks) <= height - ROWS_AROUND:
        return tasks, ""
    rows = max(MIN_ROWS, height - ROWS_AROUND - 1)
    ranked = sorted(range(len(tasks)), key=lambda at: STATE_RANKS[tasks[at].state])
    shown = sorted(ranked[:rows])
    counts: dict[TaskState, int] = {}
    for at in ranked[rows:]:
        counts[tasks[at].state] = counts.get(tasks[at].state, 0) + 1
    return [tasks[at] for at in shown], ", ".join(f"{n} {state}" for state, n in counts.items())


def _board_row(task: TaskLine, *, roomy: bool) -> BoardRow:
    return BoardRow(
        name=f"{task_mark(task)} {task.id}",
        state=task.state + attempts_text(task),
        provider=provider_name(task, roomy=roomy),
        step=_step_with_evidence(task),
        tokens=short_number(task.tokens) if task.tokens else "",
        cost=task_cost(task),
        time="" if task.seconds is None else duration(task.seconds),
        style=task_style(task),
        step_style=_step_style(task),
    )


def step_text(task: TaskLine) -> str:
    """The current step, or the result."""
    if task.failure and task.state not in ENDED_TASK_STATES:
        return f"retry after {task.failure.kind}"
    if task.failure:
        return f"{task.failure.kind}: {' '.join(task.failure.message.split())}".rstrip(": ")
    if task.state == "completed":
        return changes_text(task)
    return task.step if task.step != task.state else ""


def _step_with_evidence(task: TaskLine) -> str:
    """The step or result, behind its evidence."""
    said = step_text(task)
    if task.failure and task.failure.kind == task.evidence:
        return said
    return ", ".join(part for part in (task.evidence, said) if part)


def _step_style(task: TaskLine) -> str:
    if task.state in ENDED_TASK_STATES and (task.failure or task.evidence == "refuted"):
        return "red"
    return (
        "bold yellow"
        if task.state == "waiting"
        else "dim"
        if task.state in ENDED_TASK_STATES
        else ""
    )


def task_mark(task: TaskLine) -> str:
    return badge(task.state, task.evidence).mark


def task_style(task: TaskLine) -> str:
    return badge(task.state, task.evidence).style


def provider_name(task: TaskLine, *, roomy: bool) -> str:
    """On a narrow terminal, `zai/glm-5.3` is `glm-5.3`."""
    name = task.provider or ""
    return name if roomy else name.rpartition("/")[2]


def attempts_text(task: TaskLine) -> str:
    return f" x{task.attempts}" if task.attempts > 1 else ""


def task_cost(task: TaskLine) -> str:
    """The cost so far; nothing before the first call, `?` where it is unknown."""
    if not task.tokens:
        return ""
    return "?" if task.cost_usd is None else money(task.cost_usd)


def changes_text(task: TaskLine) -> str:
    """The changed lines, and in how many files."""
    if not task.files:
        return "no edits" if task.state == "completed" else ""
    return f"+{task.added} -{task.removed}, {task.files} file{'s' * (task.files > 1)}"


# The worst first.
CONFLICT_KINDS: Final[Mapping[ConflictKind, str]] = {
    "hunk_conflict": "the same lines, changed differently",
    "delete_modify": "deleted by one, changed by another",
    "rename": "renamed by one, changed or renamed by another",
    "binary": "not text, and changed by several",
    "mode": "made executable by one but not by another",
    "semantic": "merges, but a verify command fails on the merge",
    "file_overlap": "the same file, edited by several",
}
MARKER_WIDTH: Final = 7  # characters of a conflict marker
MARKER_STYLES: Final[Mapping[str, str]] = {
    "<" * MARKER_WIDTH: "green",
    "|" * MARKER_WIDTH: "dim",
    "=" * MARKER_WIDTH: "cyan",
    ">" * MARKER_WIDTH: "",
}
DIFF_STYLES: Final[Mapping[str, str]] = {"+": "green", "-": "red", "@": "cyan"}
SHORT_COMMIT: Final = 10


def is_complete(merged: SwarmMergeReply) -> bool:
    """Whether nothing was left out, and no check failed."""
    return not merged.left and merged.evidence != "refuted"


def show_merged(merged: SwarmMergeReply, *, dry_run: bool = False) -> None:
    """What was merged, what the checks said, and what was left out."""
    print_text(*_merge_headline(merged, dry_run=dry_run))
    rows = [(" " if at else "verify", check_text(check)) for at, check in enumerate(merged.verify)]
    rows.append(("applied", f"{merged.applied} was fast-forwarded" if merged.applied else ""))
    rows += [(" " if at else "note", note) for at, note in enumerate(merged.notes)]
    show_rows(rows)
    show_conflicts(merged.conflicts)
    show_left_over(merged.left)
    if merged.branch and merged.merged and not merged.applied and not dry_run:
        steps = [(f"git diff HEAD...{merged.branch}", "review it")]
        if merged.evidence != "refuted":
            steps.append((f"git merge {merged.branch}", "merge it"))
        show_next_steps(steps)


def _merge_headline(merged: SwarmMergeReply, *, dry_run: bool) -> tuple[str, str]:
    done = "would merge" if dry_run else "merged"
    if not merged.merged:
        return f"✗ {done} nothing", "bold red"
    where = f" into {merged.branch}" if merged.branch else ""
    commit = f" ({merged.commit[:SHORT_COMMIT]})" if merged.commit else ""
    verdict = "" if dry_run else f", {merged.evidence or 'not checked'}"
    said = f"{done} {', '.join(merged.merged)}{where}{commit}{verdict}"
    if merged.evidence == "refuted":
        return f"✗ {said}", "bold red"
    if not dry_run and merged.evidence != "verified":
        return f"~ {said}", "bold"
    return f"✓ {said}", "bold yellow" if merged.left else "bold green"


def show_conflicts(conflicts: Sequence[Conflict]) -> None:
    """Conflicts by kind, each with its hunks."""
    for kind, meaning in CONFLICT_KINDS.items():
        alike = [conflict for conflict in conflicts if conflict.kind == kind]
        if alike:
            print_text(f"\n{kind}: {meaning}", "dim" if kind == "file_overlap" else "bold red")
        for conflict in alike:
            detail = f": {conflict.detail}" if conflict.detail else ""
            print_text(f"  {conflict.path or '(all)'} ({', '.join(conflict.tasks)}){detail}")
            for hunk in conflict.hunks:
                print_text(hunk_text(hunk))


def hunk_text(hunk: str) -> "drawing.Text":
    """Each side of a conflict in its own colour; diff lines as in a diff."""
    drawn: list[drawing.Text] = []
    side = ""
    for line in strip_controls(hunk).rstrip("\n").split("\n"):
        marker = line[:MARKER_WIDTH]
        side = MARKER_STYLES.get(marker, side)
        style = "bold" if marker in MARKER_STYLES else side or DIFF_STYLES.get(line[:1], "")
        drawn.append(drawing.Text(f"    {line}", style))
    return drawing.Text("\n").join(drawn)


def show_left_over(left: Sequence[LeftOver]) -> None:
    """What is not in the merge, and what to do about it."""
    plain: dict[str, list[str]] = {}
    for one in left:
        if not one.instructions:
            plain.setdefault(one.reason, []).append(one.task)
            continue
        print_text(f"left out: {one.task}: {one.reason}", "yellow")
        for line in one.instructions.splitlines():
            print_text(f"    {line}")
    for reason, tasks in plain.items():
        print_text(f"left out: {', '.join(tasks)}: {reason}", "yellow")


def show_next_steps(steps: Sequence[tuple[str, str]]) -> None:
    """Commands, and the purpose of each."""
    if not steps:
        return
    print_text("\nnext:")
    widest = max(len(command) for command, _ in steps)
    for command, why in steps:
        print_text(f"  {command:<{widest}}  {why}")


UNFINISHED_STATES: Final = ("failed", "cancelled", "blocked")


def swarm_has_succeeded(result: SwarmResult | SwarmStatus) -> bool:
    """Whether every task completed and none was refuted."""
    return all(task.state == "completed" and task.evidence != "refuted" for task in result.tasks)


def task_failures(result: SwarmResult) -> Sequence[Failure]:
    """Why tasks failed, without those that were only blocked by another."""
    return [task.failure for task in result.tasks if task.failure and task.state != "blocked"]


def show_swarm_status(now: SwarmStatus) -> None:
    """The current state, once."""
    console = make_console()
    _show_title(now)
    print_renderable(console, swarm_table(now, DrawingSize(width=console.width)))
    for warning in now.warnings:
        print_text(f"note: {warning}", "yellow")
    asking = [task for task in now.tasks if task.state == "waiting" and task.worker_id]
    show_next_steps(
        [(f"go-ent answer {task.worker_id} y|a|n", f"{task.id} asks") for task in asking]
    )


def show_swarm_summary(result: SwarmResult, *, merging: bool = False) -> None:
    """The whole result. `merging`: the merge is shown afterwards, by itself."""
    _show_title(result)
    _show_tasks(result.tasks)
    for task in result.tasks:
        if task.failure:
            why = failure_text(task.failure).rstrip(": \n")
            print_text(f"{task_mark(task)} {task.id}: {why}", "red")
    _show_totals(result)
    if not merging:
        show_conflicts(result.conflicts)
        if result.plan.order:
            print_text(f"\nmerge plan: {' -> '.join(result.plan.order)}")
        show_left_over(result.plan.left)
    for note in result.notes:
        print_text(f"note: {note}", "yellow")
    if not merging:
        show_next_steps(_next_steps(result))


def _show_title(told: SwarmStatus | SwarmResult) -> None:
    name = f" {told.swarm}" if told.swarm and told.swarm != told.swarm_id else ""
    shown = badge(told.state, told.evidence)
    print_text(f"{shown.mark} {told.swarm_id}{name} {shown.words}", shown.title_style)


def _show_tasks(tasks: Sequence[TaskLine]) -> None:

    console = make_console()
    rows = [_task_row(task, roomy=console.width >= WIDE_TERMINAL) for task in tasks]
    table = drawing.Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in rows[0]:
        justify = "right" if head.lower() in RIGHT_ALIGNED else "left"
        shrinks = head in ("TASK", "PROVIDER")
        table.add_column(head, justify=justify, overflow="ellipsis", no_wrap=not shrinks)
    for task, row in zip(tasks, rows, strict=True):
        look = {head: task_style(task) for head in ("TASK", "STATE", "EVIDENCE")}
        cells = (
            drawing.Text(strip_controls(text), look.get(head, ""), no_wrap=True)
            for head, text in row.items()
        )
        table.add_row(*cells)
    print_renderable(console, table)


def _task_row(task: TaskLine, *, roomy: bool) -> Mapping[str, str]:
    """On a narrow terminal, evidence replaces the state that it implies."""
    evidence = task.evidence or ""
    tells = task.state == "completed" or evidence == "refuted"
    short = evidence if evidence and tells else task.state
    return {
        "TASK": f"{task_mark(task)} {task.id}",
        "STATE": (task.state if roomy else short) + attempts_text(task),
        **({"EVIDENCE": evidence} if roomy else {}),
        "FILES": str(task.files) if task.files else "-",
        "+/-": lines_changed(task.added, task.removed) if task.files else "",
        "PROVIDER": provider_name(task, roomy=roomy) or "-",
        "TOKENS": short_number(task.tokens) if task.tokens else "-",
        "COST": task_cost(task) or "-",
        "TIME": "-" if task.seconds is None else duration(task.seconds),
        **({"WORKER": task.worker_id or "-"} if roomy else {}),
    }


def _show_totals(result: SwarmResult) -> None:
    rows = [
        (name, str(part.workers), short_number(part.usage.total), money(part.cost_usd))
        for name, part in result.totals.items()
    ]
    if len(rows) > 1:
        parts = result.totals.values()
        workers = sum(part.workers for part in parts)
        tokens = sum(part.usage.total for part in parts)
        rows.append(("total", str(workers), short_number(tokens), money(result.cost_usd)))
    if rows:
        print_text("")
        show_table(("PROVIDER", "WORKERS", "TOKENS", "COST"), rows)


def _next_steps(result: SwarmResult) -> Sequence[tuple[str, str]]:
    undone = [t for t in result.tasks if t.state in UNFINISHED_STATES or t.evidence == "refuted"]
    steps: list[tuple[str, str]] = []
    if undone:
        failed = [t for t in undone if t.state == "failed" or t.evidence == "refuted"]
        what = undone[0].id if len(undone) == 1 else f"{len(undone)} tasks"
        retry = f"go-ent swarm retry {result.swarm_id}"
        if failed:
            steps.append((f"{retry} --elsewhere", f"retry {what} on another provider"))
        else:
            steps.append((retry, f"retry {what}"))
        output = f"messages and tool calls of {failed[0].id}" if failed else ""
        steps += [(f"go-ent output {t.worker_id}", output) for t in failed[:1] if t.worker_id]
    if result.plan.order:
        merge = f"go-ent swarm merge {result.swarm_id}"
        steps.append((merge, "merge the work into a branch, checked"))
    return steps


def show_swarms(swarms: SwarmList) -> None:
    if not swarms.swarms:
        print("no swarms; `go-ent swarm TASKS.yaml` starts one")
        return
    show_table(
        ("SWARM", "NAME", "STATE", "DONE", "COST", "AGE"),
        (
            (
                one.swarm_id,
                one.swarm,
                styled_cell(shown.text, shown.style),
                f"{one.done}/{one.total}",
                money(one.cost_usd),
                age(one.started_at),
            )
            for one in swarms.swarms
            for shown in (badge(one.state, one.evidence),)
        ),
    )
