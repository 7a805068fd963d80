"""How does a command run in a terminal of the client's?"""

from contextlib import suppress
from pathlib import Path

import anyio

from goent.agent.content import Terminal
from goent.agent.ports import ClientTerminal, ClientTerminals, Progress, Report, ToolMistake
from goent.agent.tools.outputs import KEPT, readable
from goent.agent.tools.shells import Exit, Launch, sweep
from goent.proc.marks import marked, marked_environment

CLIENT_S = 10.0  # seconds in which a client answers


async def in_terminal(
    terminals: ClientTerminals, launch: Launch, cwd: Path, limit: float, report: Report
) -> tuple[Exit, str, str]:
    """How it ended, what it said, and the terminal's id. It is killed and released in any case."""
    program, *arguments = launch.command
    env = marked_environment(launch.env, launch.mark)
    try:
        terminal = await terminals.create(program, tuple(arguments), cwd, env, KEPT)
    except OSError as error:
        raise ToolMistake(f"the client cannot run the command: {error}") from None
    code: int | None = None
    left = False
    try:
        await report(Progress(shown=(Terminal(id=terminal.id),)))
        with anyio.move_on_after(limit) as waiting:
            code = await terminal.wait()
        text, told = await terminal.output()
    except OSError as error:
        raise ToolMistake(f"the client's terminal failed: {error}") from None
    finally:
        with anyio.CancelScope(shield=True):
            left = await _ended(terminal, launch.mark)
    late = waiting.cancelled_caught
    ran = Exit(exit=None if late else (told if code is None else code), late=late, left=left)
    return ran, readable(text), terminal.id


async def _ended(terminal: ClientTerminal, mark: str) -> bool:
    """Kill it and let it go; whether something of it had been left running."""
    left = bool(list(marked(mark)))
    for word in (terminal.kill, terminal.release):
        with anyio.move_on_after(CLIENT_S), suppress(OSError):
            await word()
        if left:
            await sweep(mark)  # the client may have ended the shell alone
    return left
