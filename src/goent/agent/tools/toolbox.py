"""Opens all tools of a session, TodoWrite included."""

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct

from goent.agent.agent_ports import (
    AgentTool,
    OnToolProgress,
    ToolContext,
    ToolIntent,
    ToolInvocation,
    ToolOutcome,
)
from goent.agent.tools.bash_tool import BashTool, background_commands
from goent.agent.tools.command_shell import CommandShell
from goent.agent.tools.file_tools import edit_tool, read_tool, write_tool
from goent.agent.tools.search_tools import FileSearcher, glob_tool, grep_tool
from goent.agent.tools.session_files import SessionFiles
from goent.agent.tools.typed_tool import ToolArguments, TypedTool
from goent.domain.types import PlanEntry

TODO_DESCRIPTION = """Show the user your plan and your progress. Give the whole list each time.
Useful for work of several steps. Keep one entry in_progress while you work, and mark it completed as soon as it is."""


class TodoItem(Struct, frozen=True, kw_only=True):
    """One entry; unknown fields are ignored."""

    content: Annotated[str, Meta(min_length=1, max_length=1000, description="what to do")]
    status: Literal["pending", "in_progress", "completed", "cancelled"]


class TodoArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of TodoWrite."""

    todos: Annotated[
        tuple[TodoItem, ...], Meta(max_length=200, description="all entries, in order")
    ]


def todo_tool() -> TypedTool[TodoArguments]:
    async def look(asked: TodoArguments) -> ToolInvocation:
        plan = tuple(PlanEntry(text=todo.content, status=todo.status) for todo in asked.todos)

        async def run(_: OnToolProgress) -> ToolOutcome:
            counts = Counter(entry.status for entry in plan)
            summary = ", ".join(f"{count} {status}" for status, count in counts.items())
            return ToolOutcome(text=f"The plan is shown: {summary or 'no entries'}.", plan=plan)

        return ToolInvocation(ToolIntent(kind="think", title="Plan"), run)

    return TypedTool("TodoWrite", TodoArguments, lambda: TODO_DESCRIPTION, look)


@asynccontextmanager
async def open_tools(context: ToolContext) -> AsyncGenerator[Mapping[str, AgentTool]]:
    """The tools by name. Leaving ends background commands, in the task that entered."""
    files = SessionFiles(context)
    shell = CommandShell(context)
    searcher = FileSearcher(context)
    async with background_commands(shell) as running:
        tools: tuple[AgentTool, ...] = (
            read_tool(files),
            write_tool(files),
            edit_tool(files),
            BashTool(shell, running, context.terminals).tool(),
            grep_tool(files.places, searcher),
            glob_tool(files.places, searcher),
            todo_tool(),
        )
        yield {tool.name: tool for tool in tools}
