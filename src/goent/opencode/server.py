"""Runs workers' sessions over HTTP, on an `opencode serve` of ours or one run by somebody else.

A prompt is handed in and answered at once; what the model says and does comes by the event stream.
The turn is over when the server says that the session is idle and its last message bears that out:
an abort says it twice, and the second time may fall into the next turn. What the stream has lost is
read from the messages.

It is never started nor stopped, and it has a configuration and keys of its own: its model calls do
not pass our gate, so they are metered by what OpenCode reports. It must see the same files.

As by `acp`, one warm process is shared by many workers and outlived by their sessions; only the
process is another one, and it is spoken to over HTTP alone. With `opencode.serve_url` there is no
process of ours: workers are sessions on the server at that address.
"""

import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from http import HTTPStatus
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.acp.agent_messages import AnyUpdate
from goent.agents.driver_context import DriverContext
from goent.agents.opencode_program import OPENCODE_NAME, check_program, check_version
from goent.domain.errors import (
    ModelRefused,
    OpenCodeMissing,
    ProtocolError,
    RequestError,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import PermissionWithdrawn
from goent.domain.ports import Gate, TurnStopReason, WorkerLiveness, WorkerSession, WorkerSpec
from goent.domain.types import Prompt
from goent.opencode.call_guard import ProcessGuard
from goent.opencode.config_overlay import WARM
from goent.opencode.driver import OpenCodeDriver
from goent.opencode.event_stream import (
    ALL_EVENTS,
    Connected,
    EventRouter,
    MessageUpdated,
    PartDelta,
    PartUpdated,
    ServerEvent,
    SessionError,
    SessionIdle,
    SessionStatus,
)
from goent.opencode.opencode_process import HostProcess, free_port
from goent.opencode.opencode_translator import PartReader
from goent.opencode.opencode_turn import OpenCodeTurn, classify_fault
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.server_api import OpenCodeClient, ServerMessage, ServerNotFound, TurnInput
from goent.opencode.session import BaseSession
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.concurrency import task_group
from goent.proc.process_guard import guarded

LATE_ERROR_S = 0.3  # seconds for an error that comes after the end that it brought about
LOOK_AGAIN_S = 30.0  # seconds without news before the server is asked whether the turn goes on
CLOSE_TIMEOUT = 5.0
ABORTED = "MessageAbortedError"
REFUSED = "content-filter"
LOST = "the OpenCode server that asked has ended"


class SessionServer(Protocol):
    """A running server, as a session sees it. `pid` is None if it is somebody else's."""

    @property
    def client(self) -> OpenCodeClient: ...

    @property
    def switchboard(self) -> EventRouter: ...

    @property
    def guard(self) -> ProcessGuard | None: ...

    @property
    def gone(self) -> anyio.Event: ...

    @property
    def server_pid(self) -> int | None: ...

    async def crash(self) -> WorkerCrashed: ...

    async def is_ending(self) -> bool: ...


class ServeSession(BaseSession):
    """One session of a server. `start` gives it its rules; its model goes with each prompt."""

    def __init__(
        self,
        server: SessionServer,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        super().__init__(
            server.client, server.guard, spec, session, direct=direct, instructions=instructions
        )
        self._server = server
        self._reader = PartReader()
        self._last: ServerMessage | None = None
        self._changed = anyio.Event()
        self._began = False  # the server has been heard to work on the turn
        self._missed = False  # the stream broke in the turn
        self._last_before_turn: str | None = (
            None  # the last message before the turn; "" if it is the first
        )

    @classmethod
    async def start(
        cls,
        server: SessionServer,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: BaseSession | None = None,
    ) -> "ServeSession":
        """A session in the worker's directory, under its rules; `earlier` is where it was before."""
        try:
            name = await _open_session(server.client, spec)
            session = cls(server, spec, name, direct=direct, instructions=instructions)
            if spec.resume:
                await session._remember(earlier)
        except ProtocolError:
            if await server.is_ending():
                raise await server.crash() from None
            raise
        server.switchboard.add(name, session)
        if server.guard:
            server.guard.add(name, session)
        return session

    @property
    def token(self) -> str:
        return self.id

    async def crash(self) -> WorkerCrashed:
        return await self._server.crash()

    async def close(self) -> None:
        self._server.switchboard.remove(self.id)
        if self._server.guard:
            self._server.guard.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT), suppress(WorkerError):
            if self._turn is not None:
                await self._client.abort(self.id)

    async def hear(self, told: ServerEvent) -> None:
        turn = self._turn
        if turn is None:
            return
        match told:
            case SessionStatus(session=session, status=status):
                self._began = self._began or session == self.id
                if status.type == "retry":
                    await self._report_retry(status)
            case SessionError(error=error):
                self._began = True
                if turn.fault is None or not turn.fault.data.message:
                    turn.note_fault(error)  # the next one may be the same with its stack
            case SessionIdle() if self._began:
                self._changed.set()
            case Connected():
                self._missed = self._second_look.missed = True
                await self._catch_up(turn)
                self._changed.set()
            case _:
                await self._read(turn, told)

    async def _read(self, turn: OpenCodeTurn, told: ServerEvent) -> None:
        match told:
            case MessageUpdated(info=info):
                self._reader.note_message(info)
            case PartUpdated(part=part):
                await _tell_updates(turn, self._reader.read(part))
            case PartDelta():
                await _tell_updates(turn, self._reader.read_delta(told))
            case _:
                pass

    async def liveness(self) -> WorkerLiveness:
        """Into a process that is not ours nobody can look: then its own word counts."""
        if self._server.server_pid is not None:
            return await super().liveness()
        try:
            at_work = self.id in await self._client.busy(self.directory)
        except ProtocolError as error:
            return WorkerLiveness(alive=False, detail=str(error))
        return WorkerLiveness(
            alive=at_work, detail="by its server's word it is " + ("busy" if at_work else "idle")
        )

    @property
    def _pid(self) -> int | None:
        return self._server.server_pid

    async def _ask_to_stop(self) -> None:
        with suppress(ProtocolError):
            await self._client.abort(self.id)

    async def _run_turn(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        self._reader, self._last = PartReader(), None
        self._changed, self._began, self._missed = anyio.Event(), False, False
        self._last_before_turn = None
        try:
            with turn.prompt_scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_when, self._server.gone, tasks.cancel_scope)
                    await self._talk(turn, prompt)
                    tasks.cancel_scope.cancel()
        except* WorkerError as group:
            turn.error = next(e for e in group.exceptions if isinstance(e, WorkerError))
        finally:
            if self._last is None and self._server.gone.is_set():
                turn.error = await self._server.crash()
                await turn.interrupt()
                for name in self.questions.withdraw():
                    await turn.put(PermissionWithdrawn(id=name, reason=LOST))
            turn.close()

    async def _talk(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        """Hand in the prompt, and wait until its last message is there and whole."""
        try:
            newest = await self._newest()
            self._last_before_turn = newest.info.id if newest else ""
            words = TurnInput(
                model=self._spec.provider.opencode_model,
                text=prompt.text,
                files=tuple(self._attached(prompt)),
            )
            await self._client.prompt(self.id, words)
        except ProtocolError:
            if not await self._server.is_ending():
                raise
            return  # whoever watches the server tells how it ended
        while True:
            with anyio.move_on_after(LOOK_AGAIN_S):
                await self._changed.wait()
            self._changed = anyio.Event()
            if await self._is_over(turn):
                break
        await self._read_again(turn)

    async def _is_over(self, turn: OpenCodeTurn) -> bool:
        """Whether nothing more will come, as the server itself sees it."""
        try:
            if self.id in await self._client.busy(self.directory):
                self._began = True
                return False
            newest = await self._newest()
        except ProtocolError:
            return False  # either it recovers, or it is found gone
        if newest is None or newest.info.id == self._last_before_turn:
            return turn.fault is not None or turn.cancelled
        if newest.info.role == "assistant":
            done = newest.info.time.completed is not None or newest.info.error is not None
            self._last = newest if done else None
            return done
        return self._began and await turn.last_fault(LATE_ERROR_S) is not None

    async def _newest(self) -> ServerMessage | None:
        messages = await self._client.messages(self.id, limit=1)
        return messages[-1] if messages else None

    async def _catch_up(self, turn: OpenCodeTurn) -> None:
        """Tell what a broken stream has swallowed; the new one may still tell what is in there."""
        with suppress(ProtocolError):
            await self._read_all(turn, await self._messages_of_turn())
        self._reader.mark_gap()

    async def _read_again(self, turn: OpenCodeTurn) -> None:
        """The last word is the messages', not the stream's."""
        messages = [self._last] if self._last else []
        if messages and self._missed:
            with suppress(ProtocolError):
                messages = await self._messages_of_turn()
        await self._read_all(turn, messages)

    async def _messages_of_turn(self) -> Sequence[ServerMessage]:
        """The turn's messages so far."""
        if self._last_before_turn is None:
            return []
        newest_first = reversed(await self._client.messages(self.id))
        since = takewhile(lambda message: message.info.id != self._last_before_turn, newest_first)
        return [*since][::-1]

    async def _read_all(self, turn: OpenCodeTurn, messages: Sequence[ServerMessage]) -> None:
        for message in messages:
            await _tell_updates(turn, self._reader.read_message(message))

    async def _end_of_turn(self, turn: OpenCodeTurn) -> TurnStopReason:
        if turn.cancelled:
            return "cancelled"
        self._check_rejected(turn)
        if turn.error:
            raise turn.error
        error = self._last.info.error if self._last else turn.fault
        if error and error.name == ABORTED:
            return "cancelled"
        if error:
            raise classify_fault(error)
        if self._last and self._last.info.finish == REFUSED:
            raise ModelRefused(f"{self._spec.provider.opencode_model} refused to answer")
        self._check(turn)
        return "end"


async def _open_session(client: OpenCodeClient, spec: WorkerSpec) -> str:
    if spec.resume is None:
        made = await client.create(str(spec.cwd), title=spec.id, rules=spec.rules)
        return made.id
    try:
        await client.set_up(spec.resume, title=spec.id, rules=spec.rules)
    except ServerNotFound as error:
        raise WorkerError(
            f"OpenCode has no session {spec.resume!r} that it could go on with: {error}"
        ) from error
    return spec.resume


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _tell_updates(turn: OpenCodeTurn, updates: Sequence[AnyUpdate]) -> None:
    for update in updates:
        await turn.put_update(update)


ASK_AGAIN_S = 0.1
# OpenCode never answers what reaches it in the moment in which it begins to listen.
FIRST_ANSWER_S = 0.5
BOOT_TIMEOUT = 60.0


class ServeProcess(HostProcess):
    """The process, as the pool has it. It exists only inside `running`."""

    def __init__(
        self,
        child: SupervisedProcess,
        client: OpenCodeClient,
        tasks: TaskGroup,
        launch: OpenCodeLaunch,
    ) -> None:
        super().__init__(child, client, launch)
        self.client = client
        self.switchboard = EventRouter(client, tasks, ALL_EVENTS)
        self.server_pid = self.pid
        self._tasks = tasks

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: OpenCodeLaunch, mark: str) -> "AsyncGenerator[ServeProcess]":
        """Ready for sessions on entry; raises a `WorkerError` if it does not get there.

        It does not outlive us, even if we are killed.
        """
        await check_program(launch.program, launch.env, patience=launch.start_timeout)
        port = launch.port or free_port()
        if launch.port:
            await to_thread.run_sync(_check_port, launch.hostname, port)
        where = (f"--hostname={launch.hostname}", f"--port={port}")
        command = [str(launch.program), "serve", *where, *launch.arguments]
        env = await to_thread.run_sync(launch.variables)
        async with (
            guarded(mark),
            launch.confined(command, env, port) as start,
            supervised(
                start.command, cwd=launch.cwd, env=start.env, mark=mark, inner_mark=start.mark
            ) as child,
            OpenCodeClient.at(_address(launch.hostname, port), launch.password) as client,
            task_group() as tasks,
        ):
            process = cls(child, client, tasks, launch)
            tasks.start_soon(process._wait)
            tasks.start_soon(_drain, child)
            await process._be_ready(launch.start_timeout)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        return await ServeSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        """A throwaway session asks the gate's own model, which costs nothing."""
        session = (await self.client.create(str(cwd), title="warm", rules=())).id
        gate.bind(token=self.token, session=session, worker=None)
        try:
            await self.client.ask(session, TurnInput(model=WARM, text="ok"), patience=BOOT_TIMEOUT)
        finally:
            gate.unbind(session)
            with anyio.CancelScope(shield=True), suppress(WorkerError):
                await self.client.delete(session)

    async def _listen(self) -> None:
        """Have the events of all sessions, before there is one."""
        await self._tasks.start(self.switchboard.run)

    async def _wait(self) -> None:
        await self._child.wait()
        self.gone.set()

    async def _be_ready(self, patience: float) -> None:
        wait = FIRST_ANSWER_S
        with anyio.move_on_after(patience):
            while not self.gone.is_set():
                # Its own password is needed for the answer: another server there does not pass.
                asked = anyio.current_time()
                if await self.client.is_healthy(wait):
                    with suppress(ProtocolError):
                        said = (await self.client.health()).version
                        check_version(said, repr(str(self._launch.program)))
                        await self._listen()
                        return
                elif anyio.current_time() - asked >= wait:
                    wait *= 2
                await anyio.sleep(ASK_AGAIN_S)
            raise await self.failed_start()
        message = f"{OPENCODE_NAME} (pid {self.pid}) was not ready within {patience:g} s"
        raise WorkerCrashed(message, stderr=self._child.stderr)


def _check_port(hostname: str, port: int) -> None:
    """OpenCode itself says only that something was unexpected. Names that nobody knows are its to refuse."""
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return
    family, *_, where = found[0]
    try:
        socket.create_server(where[:2], family=family).close()
    except OSError as error:
        raise WorkerCrashed(
            f"port {port} of {hostname!r} cannot be had for {OPENCODE_NAME}: {os.strerror(error.errno or 0)}; end "
            "whoever listens there, or set another `port`, or none: then a free one is taken"
        ) from error


def _address(hostname: str, port: int) -> str:
    """Where a server that listens there is reached; one that listens everywhere is here too."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(hostname, hostname)  # noqa: S104 (asked for by a setting)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _drain(child: SupervisedProcess) -> None:
    """It says on its standard output that it listens; a full pipe would stop it."""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await child.stdout.receive()


POLL_S = 1.0
GONE_AFTER_S = 30.0  # seconds without its event stream before it counts as gone
IF_REFUSED = (
    "name the variable that holds it in opencode.serve_password_env, and set it where go-ent runs"
)
REMEDY = (
    "start it (`opencode serve --port N`), or take opencode.serve_url out of .goent/config.yaml, "
    "and go-ent runs a server of its own"
)


class ExternalServer:
    """A server at an address, for one worker; `gone` is set when it stays away."""

    server_pid = None
    guard = None  # it was started without ours

    def __init__(self, url: str, client: OpenCodeClient, tasks: TaskGroup) -> None:
        self.url = url
        self.client = client
        self.switchboard = EventRouter(client, tasks, ALL_EVENTS)
        self.gone = anyio.Event()

    async def crash(self) -> WorkerCrashed:
        return WorkerCrashed(f"the OpenCode server at {self.url!r} answers no more: {REMEDY}")

    async def is_ending(self) -> bool:
        return self.gone.is_set()

    async def watch(self) -> None:
        while not self.gone.is_set():
            await anyio.sleep(POLL_S)
            broken = self.switchboard.broken_since
            if broken is not None and anyio.current_time() - broken > GONE_AFTER_S:
                self.gone.set()


@asynccontextmanager
async def external_session(
    url: str, password: str, spec: WorkerSpec
) -> AsyncGenerator[ServeSession]:
    """A worker's session on the server; raises `OpenCodeMissing` if nobody is there."""
    async with OpenCodeClient.at(url, password) as client, task_group() as tasks:
        server = ExternalServer(url, client, tasks)
        await check_server(
            client, f"opencode.serve_url {url!r}", if_refused=IF_REFUSED, remedy=REMEDY
        )
        await tasks.start(server.switchboard.run)
        tasks.start_soon(server.watch)
        session = await ServeSession.start(server, spec, direct=True)
        try:
            yield session
        finally:
            with anyio.CancelScope(shield=True):
                await session.close()
            tasks.cancel_scope.cancel()


async def check_server(client: OpenCodeClient, where: str, *, if_refused: str, remedy: str) -> None:
    """Raises `OpenCodeMissing` if no healthy server is `where`, with what can be done about it.

    And `UnsupportedVersion` if it is one of a version that go-ent does not work with.
    """
    try:
        health = await client.health()
    except ProtocolError as error:
        if f": {HTTPStatus.UNAUTHORIZED.value} " in f"{error} ":
            raise OpenCodeMissing(f"{where} refuses the password: {if_refused}") from error
        raise OpenCodeMissing(f"{where} does not answer ({error}): {remedy}") from error
    if health.version:
        check_version(health.version, where, remedy=remedy)
    if not health.healthy:
        raise OpenCodeMissing(f"{where} is no OpenCode server, or not a healthy one: {remedy}")


class OwnServerDriver(OpenCodeDriver):
    """The port `Driver`, by servers that we start."""

    @staticmethod
    def run(launch: OpenCodeLaunch, mark: str) -> AbstractAsyncContextManager[HostProcess]:
        return ServeProcess.running(launch, mark)


class OpenCodeServeDriver:
    """The port `Driver`, by a server of ours or the one that the settings name."""

    def __init__(self, ours: OwnServerDriver, around: DriverContext) -> None:
        self._ours = ours
        self._around = around

    @classmethod
    @asynccontextmanager
    async def running(
        cls, around: DriverContext, gate: Gate, *, owner: str
    ) -> "AsyncGenerator[OpenCodeServeDriver]":
        """On leaving, every server that it has started is ended, and no other."""
        async with OwnServerDriver.running(around, gate, owner=owner) as ours:
            yield cls(ours, around)

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        """A session for one worker, closed on leaving."""
        where = self._around.settings().opencode
        if where.serve_url is None:
            async with self._ours.open(spec) as session:
                yield session
            return
        if not spec.cwd.is_dir():
            raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
        password = self._around.environ().get(where.serve_password_env or "", "")
        async with external_session(where.serve_url, password, spec) as session:
            yield session
