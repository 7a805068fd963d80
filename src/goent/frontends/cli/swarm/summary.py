"""How does a swarm look when it is over: what came of each task, and what can be done now?"""

from collections.abc import Mapping, Sequence
from typing import Final

from goent.domain.swarms import SwarmList, SwarmResult, SwarmStatus, TaskLine
from goent.domain.types import Failure
from goent.frontends.cli.badge import badge
from goent.frontends.cli.screen import clean, make_console, print_text
from goent.frontends.cli.show import failure_words, print_drawn, show_table, styled
from goent.frontends.cli.swarm.merging import show_conflicts, show_left, show_next
from goent.frontends.cli.swarm.table import (
    RIGHT,
    ROOMY,
    Room,
    attempts,
    colour,
    cost,
    provider,
    sign,
    swarm_table,
)
from goent.frontends.cli.words import ago, count, duration, lines_changed, money

UNDONE: Final = ("failed", "cancelled", "blocked")


def is_done(result: SwarmResult | SwarmStatus) -> bool:
    """Every task completed, and none refuted."""
    return all(task.state == "completed" and task.evidence != "refuted" for task in result.tasks)


def troubles(result: SwarmResult) -> Sequence[Failure]:
    """Why tasks failed, but for those that only waited for one that did."""
    return [task.failure for task in result.tasks if task.failure and task.state != "blocked"]


def show_status(now: SwarmStatus) -> None:
    """How it stands, once."""
    console = make_console()
    _show_title(now)
    print_drawn(console, swarm_table(now, Room(width=console.width)))
    for warning in now.warnings:
        print_text(f"note: {warning}", "yellow")
    asking = [task for task in now.tasks if task.state == "waiting" and task.worker_id]
    show_next([(f"go-ent answer {task.worker_id} y|a|n", f"{task.id} asks") for task in asking])


def show_summary(result: SwarmResult, *, merging: bool = False) -> None:
    """All that came of it. If it is merged already, that is told by itself."""
    _show_title(result)
    _show_tasks(result.tasks)
    for task in result.tasks:
        if task.failure:
            why = failure_words(task.failure).rstrip(": \n")
            print_text(f"{sign(task)} {task.id}: {why}", "red")
    _show_totals(result)
    if not merging:
        show_conflicts(result.conflicts)
        if result.plan.order:
            print_text(f"\nmerge plan: {' -> '.join(result.plan.order)}")
        show_left(result.plan.left)
    for note in result.notes:
        print_text(f"note: {note}", "yellow")
    if not merging:
        show_next(_next_steps(result))


def _show_title(told: SwarmStatus | SwarmResult) -> None:
    name = f" {told.swarm}" if told.swarm and told.swarm != told.swarm_id else ""
    shown = badge(told.state, told.evidence)
    print_text(f"{shown.mark} {told.swarm_id}{name} {shown.words}", shown.title_style)


def _show_tasks(tasks: Sequence[TaskLine]) -> None:
    from rich.table import Table  # noqa: PLC0415 (rich is loaded only where something is drawn)
    from rich.text import Text  # noqa: PLC0415 (the same)

    console = make_console()
    rows = [_row(task, roomy=console.width >= ROOMY) for task in tasks]
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in rows[0]:
        justify = "right" if head.lower() in RIGHT else "left"
        shrinks = head in ("TASK", "PROVIDER")
        table.add_column(head, justify=justify, overflow="ellipsis", no_wrap=not shrinks)
    for task, row in zip(tasks, rows, strict=True):
        look = {head: colour(task) for head in ("TASK", "STATE", "EVIDENCE")}
        cells = (Text(clean(text), look.get(head, ""), no_wrap=True) for head, text in row.items())
        table.add_row(*cells)
    print_drawn(console, table)


def _row(task: TaskLine, *, roomy: bool) -> Mapping[str, str]:
    """Where the room is short, evidence stands for the state that it implies."""
    evidence = task.evidence or ""
    tells = task.state == "completed" or evidence == "refuted"
    short = evidence if evidence and tells else task.state
    return {
        "TASK": f"{sign(task)} {task.id}",
        "STATE": (task.state if roomy else short) + attempts(task),
        **({"EVIDENCE": evidence} if roomy else {}),
        "FILES": str(task.files) if task.files else "-",
        "+/-": lines_changed(task.added, task.removed) if task.files else "",
        "PROVIDER": provider(task, roomy=roomy) or "-",
        "TOKENS": count(task.tokens) if task.tokens else "-",
        "COST": cost(task) or "-",
        "TIME": "-" if task.seconds is None else duration(task.seconds),
        **({"WORKER": task.worker_id or "-"} if roomy else {}),
    }


def _show_totals(result: SwarmResult) -> None:
    rows = [
        (name, str(part.workers), count(part.usage.total), _known(part.cost_usd))
        for name, part in result.totals.items()
    ]
    if len(rows) > 1:
        parts = result.totals.values()
        workers = sum(part.workers for part in parts)
        tokens = sum(part.usage.total for part in parts)
        rows.append(("total", str(workers), count(tokens), _known(result.cost_usd)))
    if rows:
        print_text("")
        show_table(("PROVIDER", "WORKERS", "TOKENS", "COST"), rows)


def _known(usd: float | None) -> str:
    return "unknown" if usd is None else money(usd)


def _next_steps(result: SwarmResult) -> Sequence[tuple[str, str]]:
    undone = [t for t in result.tasks if t.state in UNDONE or t.evidence == "refuted"]
    steps: list[tuple[str, str]] = []
    if undone:
        failed = [t for t in undone if t.state == "failed" or t.evidence == "refuted"]
        what = undone[0].id if len(undone) == 1 else f"{len(undone)} tasks"
        retry = f"go-ent swarm retry {result.swarm_id}"
        if failed:
            steps.append((f"{retry} --elsewhere", f"{what} again, on another provider"))
        else:
            steps.append((retry, f"{what} again"))
        output = f"what the worker of {failed[0].id} said and did" if failed else ""
        steps += [(f"go-ent output {t.worker_id}", output) for t in failed[:1] if t.worker_id]
    if result.plan.order:
        merge = f"go-ent swarm merge {result.swarm_id}"
        steps.append((merge, "join the work on a branch, checked"))
    return steps


def show_swarms(swarms: SwarmList) -> None:
    if not swarms.swarms:
        print("no swarms; `go-ent swarm TASKS.yaml` makes one")
        return
    show_table(
        ("SWARM", "NAME", "STATE", "DONE", "COST", "AGE"),
        (
            (
                one.swarm_id,
                one.swarm,
                styled(shown.text, shown.style),
                f"{one.done}/{one.total}",
                money(one.cost_usd),
                ago(one.started_at),
            )
            for one in swarms.swarms
            for shown in (badge(one.state, one.evidence),)
        ),
    )
