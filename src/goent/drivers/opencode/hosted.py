"""What can be said of any OpenCode process of ours, however it is spoken to?"""

import re
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import anyio

from goent.domain.errors import WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.drivers.opencode.client import Client
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.failures import database_trouble
from goent.drivers.opencode.guard import ProcessGuard
from goent.proc import Supervised
from goent.proc.marks import send

NAME = "OpenCode"
LAST_WORDS = 2.0  # seconds for the exit code, once the line is dead
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Hosted(ABC):
    """One process with OpenCode's HTTP server in it; `gone` is set when it has ended."""

    def __init__(self, child: Supervised, inner: Client, launch: Launch) -> None:
        self.inner = inner
        self.token = launch.token
        self.pid = child.pid
        self.gone = anyio.Event()
        self.guard = ProcessGuard(launch.shell_variables, launch.hint)
        self._child = child
        self._launch = launch
        self._is_first = not launch.database.exists()
        self._given_up = ""

    @abstractmethod
    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: Conversation | None,
    ) -> Conversation:
        """A worker's session; `earlier` is the same one in a process that it has left."""

    @abstractmethod
    async def boot(self, gate: Gate, cwd: Path) -> None:
        """Make a directory quick before the first real prompt in it."""

    async def forget(self, cwd: Path) -> None:
        """Give the memory of a directory back; it can be booted again."""
        self.guard.unloaded(str(cwd))
        await self.inner.dispose(str(cwd))

    def give_up(self, why: str) -> None:
        """End it at once: it can no longer be asked to."""
        self._given_up = why
        send(self.pid, signal.SIGKILL)

    async def is_ending(self) -> bool:
        """Whether it is gone, or about to be: its server breaks a moment before its pipes do."""
        with anyio.move_on_after(LAST_WORDS):
            await self.gone.wait()
        return self.gone.is_set()

    async def crash(self) -> WorkerCrashed:
        """What to tell whoever relied on it."""
        with anyio.move_on_after(LAST_WORDS):
            await self._child.wait()
            await self.gone.wait()
        code = self._child.returncode
        stderr = _COLOURS.sub("", self._child.stderr)
        ending = f"ended with code {code}" if code is not None else "hung up"
        ending = self._given_up or ending
        # Who was killed had no last words: what stands there is about other sessions.
        spoke = bool(stderr) and (code is None or code >= 0)
        last = f": {stderr[-500:]}" if spoke else ""
        return WorkerCrashed(
            f"{NAME} (pid {self.pid}) {ending}{last}", returncode=code, stderr=stderr
        )

    async def failed_start(self) -> WorkerError:
        """What to tell of one that ended before it was ready."""
        crash = await self.crash()
        # Two first starts on one database look the same, and are tried again.
        trouble = None if self._is_first else database_trouble(crash.stderr, self._launch.database)
        return trouble or crash


def free_port() -> int:
    """OpenCode tells nobody which port it took, so it is given one; a race is tried again."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
