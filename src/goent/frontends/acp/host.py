"""When does the agent come to life, and who waits for it?

Not before a client wants a session: an editor that only asks who we are gets its answer from a
process that has opened no file and knows no key.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import anyio
from anyio.abc import TaskGroup

from goent.agent.agent import Agent
from goent.domain.errors import EnvironmentTrouble

OpenAgent = Callable[[], AbstractAsyncContextManager[Agent]]


class AgentHost:
    """Opens the agent when it is first asked for, in a task of its own, and closes it there."""

    def __init__(self, open_agent: OpenAgent, tasks: TaskGroup) -> None:
        self._open_agent = open_agent
        self._tasks = tasks
        self._attempt: _Attempt | None = None
        self._over = anyio.Event()

    async def get(self) -> Agent:
        """Raises what opening it raised; whoever asks next tries again."""
        if self._attempt is None:
            self._attempt = _Attempt()
            self._tasks.start_soon(self._keep, self._attempt)
        return await self._attempt.agent()

    def close(self) -> None:
        """The agent ends, and its sessions with it."""
        self._over.set()

    async def _keep(self, attempt: "_Attempt") -> None:
        try:
            async with self._open_agent() as agent:
                attempt.settle(agent)
                await self._over.wait()
        except Exception as error:
            if attempt.settled.is_set():
                raise
            self._attempt = None
            attempt.settle(_alone(error))


class _Attempt:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self._outcome: Agent | Exception | None = None

    def settle(self, outcome: Agent | Exception) -> None:
        self._outcome = outcome
        self.settled.set()

    async def agent(self) -> Agent:
        await self.settled.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def _alone(error: Exception) -> Exception:
    """What went wrong, out of the task groups that it came through."""
    match error:
        case ExceptionGroup(exceptions=(Exception() as only,)):
            return _alone(only)
        case OSError():
            return EnvironmentTrouble(str(error))
        case _:
            return error
