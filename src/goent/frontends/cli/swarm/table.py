"""How does a swarm look while it runs? One row a task, and a bar for all of them.

From a status to something that can be drawn, within the room that there is; nothing is asked.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from goent.domain.swarms import TASKS_OVER, SwarmStatus, TaskLine, TaskState
from goent.domain.types import Value
from goent.frontends.cli.badge import badge
from goent.frontends.cli.screen import clean
from goent.frontends.cli.words import count, duration, money

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

# Where there is no room for all rows, those that somebody may have to do with come first.
RANK: Final[Mapping[TaskState, int]] = {
    "waiting": 0,
    "failed": 1,
    "running": 2,
    "starting": 3,
    "blocked": 4,
    "cancelled": 5,
    "pending": 6,
    "completed": 7,
}
HEADS: Final = ("task", "state", "provider", "step", "tokens", "cost", "time")
RIGHT: Final = frozenset({"files", "tokens", "cost", "time"})
FIRST_TO_GO: Final = ("tokens", "provider", "cost", "time")  # where the room is short
LEAST_STEP: Final = 10
LONGEST: Final[Mapping[str, int]] = {"task": 26, "provider": 24, "step": 60}
ROOMY: Final = 100
SHORTER: Final[Mapping[str, int]] = {"task": 16, "provider": 14}
USUAL: Final[Mapping[str, int]] = {
    "state": 9,
    "tokens": 6,
    "cost": 7,
    "time": 5,
}  # no jumping about
GAP: Final = 2
AROUND: Final = 3  # lines beside the rows: heads, the bar, the keys
LEAST_ROWS: Final = 3
BAR: Final = 30
LEAST_BAR: Final = 8


class Room(Value, frozen=True, kw_only=True):
    """What there is to draw on. `height` None: as much as is needed."""

    width: int
    height: int | None = None


def swarm_table(now: SwarmStatus, room: Room, keys: str = "") -> "RenderableType":
    """The tasks, the bar, and the keys that count if a question is open."""
    from rich.console import Group  # noqa: PLC0415 (rich is loaded only where something is drawn)
    from rich.table import Table  # noqa: PLC0415 (the same)
    from rich.text import Text  # noqa: PLC0415 (the same)

    tasks, hidden = _that_fit(now.tasks, room.height)
    cells = [_cells(task, roomy=room.width >= ROOMY) for task in tasks]
    columns = _columns(cells, room.width)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, GAP, 0, 0))
    for head, width in columns.items():
        justify = "right" if head in RIGHT else "left"
        table.add_column(head, no_wrap=True, width=width, justify=justify, overflow="ellipsis")
    for task, row in zip(tasks, cells, strict=True):
        styles = {"task": colour(task), "state": colour(task), "step": _step_style(task)}
        table.add_row(*(Text(row[head], style=styles.get(head, "")) for head in columns))
    below = [Text(f"  … and {hidden}", style="dim")] if hidden else []
    foot = [Text(clean(keys), style="bold yellow", no_wrap=True, overflow="ellipsis")]
    return Group(table, *below, foot_line(now, room.width), *(foot if keys else []))


def foot_line(now: SwarmStatus, width: int) -> "Text":
    """How far all is, what it has cost and how long it takes, with a bar as long as there is room."""
    from rich.text import Text  # noqa: PLC0415 (the same)

    said = f"  {now.done}/{now.total} · {' · '.join(_sums(now))}"
    drawn = Text(no_wrap=True, overflow="ellipsis")
    cells = min(BAR, width - len(said))
    if cells >= LEAST_BAR:
        for part, style in _bar(now.tasks, cells):
            drawn.append(part, style)
    drawn.append(said if cells >= LEAST_BAR else said.strip())
    return drawn


def _sums(now: SwarmStatus) -> Sequence[str]:
    known = now.cost_usd is not None
    spent = money(now.cost_usd) if known else "cost unknown"
    between = " of" if known else ", budget"
    budget = f"{between} {money(now.budget_usd)}" if now.budget_usd is not None else ""
    asking = sum(task.state == "waiting" for task in now.tasks)
    questions = f"{asking} question{'s' * (asking > 1)} open" if asking else ""
    return [part for part in (spent + budget, duration(now.seconds), questions) if part]


def _bar(tasks: Sequence[TaskLine], cells: int) -> Sequence[tuple[str, str]]:
    """What is verified, only claimed, not done, under way and still to come."""
    verified = sum(task.state == "completed" and task.evidence == "verified" for task in tasks)
    well = sum(task.state == "completed" and task.evidence != "refuted" for task in tasks)
    over = sum(task.state in TASKS_OVER for task in tasks)
    begun = sum(task.state not in {*TASKS_OVER, "pending"} for task in tasks)
    ends = [round(n / max(1, len(tasks)) * cells) for n in (verified, well, over, over + begun)]
    ends = [*ends, cells]
    looks = (("█", "green"), ("█", ""), ("█", "red"), ("▒", "cyan"), ("░", "dim"))
    lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
    return [(sign * n, style) for (sign, style), n in zip(looks, lengths, strict=True) if n]


def _that_fit(tasks: Sequence[TaskLine], height: int | None) -> tuple[Sequence[TaskLine], str]:
    """The rows that there is room for, in their order, and what the others are."""
    if height is None or len(tasks) <= height - AROUND:
        return tasks, ""
    rows = max(LEAST_ROWS, height - AROUND - 1)
    ranked = sorted(range(len(tasks)), key=lambda at: RANK[tasks[at].state])
    shown = sorted(ranked[:rows])
    counts: dict[TaskState, int] = {}
    for at in ranked[rows:]:
        counts[tasks[at].state] = counts.get(tasks[at].state, 0) + 1
    return [tasks[at] for at in shown], ", ".join(f"{n} {state}" for state, n in counts.items())


def _columns(rows: Sequence[Mapping[str, str]], width: int) -> Mapping[str, int]:
    """Which columns are shown, and how wide; the step takes what the others leave."""
    longest = LONGEST if width >= ROOMY else {**LONGEST, **SHORTER}
    widths = {
        head: min(longest.get(head, width), max(_least(head), *(len(row[head]) for row in rows)))
        for head in HEADS
    }
    going = [*FIRST_TO_GO]
    while (left := _left(widths, width)) < LEAST_STEP and going:
        widths.pop(going.pop(0))
    widths["step"] = min(longest["step"], left)
    return {head: cells for head, cells in widths.items() if cells > 0}


def _left(widths: Mapping[str, int], width: int) -> int:
    return width - sum(cells + GAP for head, cells in widths.items() if head != "step")


def _least(head: str) -> int:
    return max(len(head), USUAL.get(head, 0))


def _cells(task: TaskLine, *, roomy: bool) -> Mapping[str, str]:
    return {
        "task": f"{sign(task)} {clean(task.id)}",
        "state": task.state + attempts(task),
        "provider": clean(provider(task, roomy=roomy)),
        "step": " ".join(clean(_with_evidence(task)).split()),
        "tokens": count(task.tokens) if task.tokens else "",
        "cost": cost(task),
        "time": "" if task.seconds is None else duration(task.seconds),
    }


def step_words(task: TaskLine) -> str:
    """What it is at, or what came of it."""
    if task.failure and task.state not in TASKS_OVER:
        return f"again, after {task.failure.kind}"
    if task.failure:
        return f"{task.failure.kind}: {' '.join(task.failure.message.split())}".rstrip(": ")
    if task.state == "completed":
        return changes(task)
    return task.step if task.step != task.state else ""


def _with_evidence(task: TaskLine) -> str:
    """What came of it begins with what that rests on."""
    said = step_words(task)
    if task.failure and task.failure.kind == task.evidence:
        return said
    return ", ".join(part for part in (task.evidence, said) if part)


def _step_style(task: TaskLine) -> str:
    if task.state in TASKS_OVER and (task.failure or task.evidence == "refuted"):
        return "red"
    return "bold yellow" if task.state == "waiting" else "dim" if task.state in TASKS_OVER else ""


def sign(task: TaskLine) -> str:
    return badge(task.state, task.evidence).mark


def colour(task: TaskLine) -> str:
    return badge(task.state, task.evidence).style


def provider(task: TaskLine, *, roomy: bool) -> str:
    """Where the room is short, `zai/glm-5.3` is `glm-5.3`."""
    name = task.provider or ""
    return name if roomy else name.rpartition("/")[2]


def attempts(task: TaskLine) -> str:
    return f" x{task.attempts}" if task.attempts > 1 else ""


def cost(task: TaskLine) -> str:
    """What it has cost; nothing before the first call, and no number that is not known."""
    if not task.tokens:
        return ""
    return "?" if task.cost_usd is None else money(task.cost_usd)


def changes(task: TaskLine) -> str:
    """The lines it changed, and in how many files."""
    if not task.files:
        return "no edits" if task.state == "completed" else ""
    return f"+{task.added} -{task.removed}, {task.files} file{'s' * (task.files > 1)}"
