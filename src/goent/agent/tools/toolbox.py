"""All tools of a session."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from goent.agent.ports import Desk, Tool
from goent.agent.tools.backgrounds import backgrounds
from goent.agent.tools.bash import Bash
from goent.agent.tools.edit import edit_tool
from goent.agent.tools.files import Files
from goent.agent.tools.glob import glob_tool
from goent.agent.tools.grep import grep_tool
from goent.agent.tools.read import read_tool
from goent.agent.tools.searching import Searcher
from goent.agent.tools.shells import Shell
from goent.agent.tools.todo import todo_tool
from goent.agent.tools.write import write_tool


@asynccontextmanager
async def open_tools(desk: Desk) -> AsyncGenerator[Mapping[str, Tool]]:
    """By name. Leaving ends the background commands; it is left by the task that entered it."""
    files = Files(desk)
    shell = Shell(desk)
    searcher = Searcher(desk)
    async with backgrounds(shell) as running:
        tools: tuple[Tool, ...] = (
            read_tool(files),
            write_tool(files),
            edit_tool(files),
            Bash(shell, running, desk.terminals).tool(),
            grep_tool(files.places, searcher),
            glob_tool(files.places, searcher),
            todo_tool(),
        )
        yield {tool.name: tool for tool in tools}
