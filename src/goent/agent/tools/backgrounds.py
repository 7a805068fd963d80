"""Which commands of the session run in the background?"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from goent.agent.ports import ToolMistake
from goent.agent.tools.outputs import Kept
from goent.agent.tools.shells import POLL, Exit, Launch, Shell

AT_ONCE = 16

log = logging.getLogger(__name__)


class Background:
    """One command, until it ends, is stopped, or the session ends."""

    def __init__(self) -> None:
        self.said = Kept()
        self.ran: Exit | None = None
        self.failure: ToolMistake | None = None
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()

    async def run(self, shell: Shell, launch: Launch) -> None:
        try:
            with self.scope:
                self.ran = await shell.run(launch, self.said, None)
        except ToolMistake as mistake:
            self.failure = mistake
        except Exception as error:
            log.exception("a background command failed")
            self.failure = ToolMistake(f"the command failed: {error}")
        finally:
            self.over.set()

    async def news(self) -> None:
        """Return as soon as it has said something, or has ended."""
        while not (self.said.total or self.over.is_set()):  # noqa: ASYNC110 (bytes ring no bell)
            await anyio.sleep(POLL)


class Backgrounds:
    """All of a session; they exist only inside `backgrounds`."""

    def __init__(self, shell: Shell, tasks: TaskGroup) -> None:
        self._shell = shell
        self._tasks = tasks
        self._all: dict[str, Background] = {}

    def room(self) -> None:
        """Raises `ToolMistake` if there is none for another one."""
        running = [name for name, one in self._all.items() if not one.over.is_set()]
        if len(running) >= AT_ONCE:
            raise ToolMistake(f"{AT_ONCE} commands run in the background: stop one of {running}")

    def start(self, launch: Launch) -> str:
        self.room()
        name = f"bg_{len(self._all) + 1}"
        self._all[name] = Background()
        self._tasks.start_soon(self._all[name].run, self._shell, launch)
        return name

    def get(self, name: str) -> Background:
        """Raises `ToolMistake` if there is none of that name."""
        if name not in self._all:
            known = ", ".join(self._all) or "none was started"
            raise ToolMistake(f"no background command {name!r}: {known}")
        return self._all[name]


@asynccontextmanager
async def backgrounds(shell: Shell) -> AsyncGenerator[Backgrounds]:
    """To be left by the task that entered it; leaving ends all of them."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield Backgrounds(shell, tasks)
        except Exception as error:  # noqa: BLE001 (raised below, where no group wraps it)
            failure = error
        tasks.cancel_scope.cancel()
    if failure:
        raise failure
