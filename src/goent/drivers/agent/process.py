"""What is one running agent: a process, and an ACP line to it?

It runs in a task of its own, so that it can outlive the turn that started it. Whoever started it
closes it; one that hangs up by itself is brought down with all that it started.
"""

import logging
import re
import signal

import anyio
from anyio.abc import TaskStatus

from goent.acp.messages import InitializeResult
from goent.domain.errors import ProtocolError, WorkerCrashed, WorkerError
from goent.drivers.acp_connection import AgentConnection, Client
from goent.drivers.agent.failures import classify
from goent.drivers.agent.launch import Launch
from goent.drivers.opencode import version
from goent.drivers.tasks import task_group
from goent.proc import Supervised, supervised
from goent.proc.marks import send
from goent.proc.table import lives
from goent.rpc import RpcError

LAST_WORDS = 2.0  # seconds for the exit code, once the line is dead
END = 15.0  # seconds for the end of a process and of what it started; they are bounded themselves
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

log = logging.getLogger(__name__)


class AgentProcess:
    """One agent. `gone` is set when it hangs up, `finished` when nothing of it is left."""

    def __init__(self, launch: Launch, client: Client, mark: str) -> None:
        self.launch = launch
        self.gone = anyio.Event()
        self.finished = anyio.Event()
        self._client = client
        self._mark = mark
        self._stop = anyio.Event()
        self._given_up = ""
        self._code: int | None = None
        self._stderr = ""
        self._parts: tuple[Supervised, AgentConnection, InitializeResult] | None = None

    @property
    def child(self) -> Supervised:
        return self._ready[0]

    @property
    def connection(self) -> AgentConnection:
        return self._ready[1]

    @property
    def hello(self) -> InitializeResult:
        """What the agent said of itself."""
        return self._ready[2]

    @property
    def lost(self) -> bool:
        """Whether nobody there will answer any more."""
        if self.gone.is_set() or self._given_up:
            return True
        return not lives(self.child.pid)  # it has died, and nobody has heard of it yet

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Started when it has shaken hands; raises a `WorkerError` if it does not get there."""
        try:
            async with (
                self.launch.confined() as start,
                supervised(
                    start.command,
                    cwd=self.launch.cwd,
                    env=start.env,
                    mark=self._mark,
                    inner_mark=start.mark,
                ) as child,
            ):
                await self._live(child, task_status)
        except Exception as error:
            if self._parts is None:
                raise
            log.exception("agent %s met a fault of go-ent's own", self.launch.name, exc_info=error)
        finally:
            self.gone.set()
            self.finished.set()

    async def close(self) -> None:
        """End it, and what it started."""
        self._stop.set()
        with anyio.move_on_after(END, shield=True):
            await self.finished.wait()

    def give_up(self, why: str) -> None:
        """End it at once: it can no longer be asked to."""
        self._given_up = why
        send(self.child.pid, signal.SIGKILL)

    async def crash(self, *, session_lives: bool) -> WorkerCrashed:
        """What to tell whoever relied on it."""
        with anyio.move_on_after(END):
            await self.finished.wait()
        return self._crash(self.child, session_lives=session_lives)

    @property
    def _ready(self) -> tuple[Supervised, AgentConnection, InitializeResult]:
        assert self._parts, "an agent is used after it has shaken hands"
        return self._parts

    async def _live(self, child: Supervised, task_status: TaskStatus[None]) -> None:
        async with task_group() as tasks:
            connection = AgentConnection(
                child.stdout, child.stdin, self._client, name=self.launch.name, takes_writes=False
            )
            tasks.start_soon(self._serve, connection)
            hello = await self._shake_hands(connection, child)
            self._parts = (child, connection, hello)
            task_status.started()
            tasks.start_soon(self._until_told, tasks.cancel_scope)
            await self.gone.wait()
            await self._hear_last_words(child)
            tasks.cancel_scope.cancel()

    async def _until_told(self, scope: anyio.CancelScope) -> None:
        await self._stop.wait()
        scope.cancel()

    async def _serve(self, connection: AgentConnection) -> None:
        try:
            await connection.run()
        finally:
            self.gone.set()

    async def _hear_last_words(self, child: Supervised) -> None:
        """How it ended by itself, before it is brought down."""
        with anyio.move_on_after(LAST_WORDS):
            self._code = await child.wait()
        self._stderr = child.stderr

    async def _shake_hands(
        self, connection: AgentConnection, child: Supervised
    ) -> InitializeResult:
        patience = self.launch.start_timeout
        try:
            with anyio.fail_after(patience):
                hello = await connection.initialize(patience=None)
        except TimeoutError:
            message = f"{self.launch.name} (pid {child.pid}) did not answer within {patience:g} s"
            raise WorkerCrashed(_with(message, child.stderr), stderr=child.stderr) from None
        except WorkerCrashed:
            await self._hear_last_words(child)
            raise self._crash(child, session_lives=False, remedy=self.launch.remedy) from None
        except ProtocolError as error:
            raise ProtocolError(_with(str(error), child.stderr)) from error
        except RpcError as error:
            raise self.refusal(error, opening=True) from error
        if hello.agent_info and hello.agent_info.name == version.NAME:
            version.check_agent(hello.agent_info.version, self.launch.name)
        return hello

    def refusal(self, error: RpcError, *, opening: bool = False) -> WorkerError:
        """Of a prompt, or of the session when that is opened."""
        logins = self._parts[2].auth_methods if self._parts else ()
        return classify(error, self.launch, logins, remedy=self.launch.remedy if opening else "")

    def _crash(self, child: Supervised, *, session_lives: bool, remedy: str = "") -> WorkerCrashed:
        ending = "hung up" if self._code is None else f"ended with code {self._code}"
        ending = self._given_up or ending
        return WorkerCrashed(
            _with(f"{self.launch.name} (pid {child.pid}) {ending}", self._stderr) + remedy,
            returncode=self._code,
            stderr=_COLOURS.sub("", self._stderr),
            session_lives=session_lives,
        )


def _with(message: str, stderr: str) -> str:
    last = _COLOURS.sub("", stderr)[-500:].strip()
    return f"{message}: {last}" if last else message
