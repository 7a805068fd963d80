"""TodoWrite: what is to be done, and how far is it?"""

from collections import Counter
from typing import Annotated, Literal

from msgspec import Meta, Struct

from goent.agent.ports import Intent, Outcome, Report
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.domain.types import PlanEntry

DESCRIPTION = """Show the user your plan, and how far you are. Give the whole list each time.
Worth it for work of several steps. Keep one entry in_progress while you work, and mark it completed as soon as it is."""


class Todo(Struct, frozen=True, kw_only=True):
    """One entry; what else a model writes of it is not needed."""

    content: Annotated[str, Meta(min_length=1, max_length=1000, description="what is to be done")]
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class TodoArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of TodoWrite."""

    todos: Annotated[tuple[Todo, ...], Meta(max_length=200, description="all entries, in order")]


def todo_tool() -> ToolOf[TodoArguments]:
    async def look(asked: TodoArguments) -> Prepared:
        plan = tuple(PlanEntry(text=todo.content, status=todo.status) for todo in asked.todos)

        async def run(_: Report) -> Outcome:
            counts = Counter(entry.status for entry in plan)
            told = ", ".join(f"{count} {status}" for status, count in counts.items())
            return Outcome(text=f"The plan is shown: {told or 'no entries'}.", plan=plan)

        return Prepared(Intent(kind="think", title="Plan"), run)

    return ToolOf("TodoWrite", TodoArguments, lambda: DESCRIPTION, look)
