"""Runs a worker's session over ACP, in an `opencode acp` process.

A turn's events come from three places: ACP updates, permission questions, the server's event
stream, which tells of retries, errors and subagents.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio

from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
)
from goent.acp.message_parts import AcpText, ConfigOption, ContentBlock, ResourceLink, find_option
from goent.agents.acp_turn import LATE_UPDATE_S
from goent.agents.agent_connection import AUTH_REQUIRED, call_with_login
from goent.agents.open_questions import permission_outcome
from goent.domain.errors import (
    ModelRefused,
    ProtocolError,
    UnknownModel,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import PermissionWithdrawn
from goent.domain.ports import Gate, TurnStopReason, WorkerSpec
from goent.domain.types import Prompt
from goent.opencode.config_overlay import WARM
from goent.opencode.event_stream import Connected, ServerEvent, SessionError, SessionStatus
from goent.opencode.opencode_process import AcpProcess, boot_directory
from goent.opencode.opencode_turn import OpenCodeTurn, classify_error
from goent.opencode.server_api import PendingQuestion
from goent.opencode.session import BaseSession
from goent.rpc.json_rpc import RpcError

CLOSE_TIMEOUT = 5.0
MAX_NAMES = 20
LOST = "the OpenCode process that asked has ended"
OfferedOptions = tuple[ConfigOption, ...] | None
# OpenCode trims a prompt, and one that begins with a slash never reaches the model.
_SLASH = re.compile(r"[\s\ufeff]*/")


class AcpSession(BaseSession):
    """One session of an `opencode acp`. `start` gives it its model and its rules."""

    def __init__(
        self,
        process: AcpProcess,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        super().__init__(
            process.client, process.guard, spec, session, direct=direct, instructions=instructions
        )
        self._process = process

    @classmethod
    async def start(
        cls,
        process: AcpProcess,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: BaseSession | None = None,
    ) -> "AcpSession":
        """A session in the worker's directory, on the worker's model, under its rules.

        `earlier` is the same one in a process that it has left.
        """
        try:
            (name, options), _ = await call_with_login(
                process.connection, process.login, lambda: _open(process, spec)
            )
            session = cls(process, spec, name, direct=direct, instructions=instructions)
            await session._set_model(options)
            await process.client.set_up(name, title=spec.id, rules=spec.rules)
            if spec.resume:
                await session._remember(earlier)
        except WorkerCrashed:
            raise await process.crash() from None
        except ProtocolError:
            if await process.is_ending():
                raise await process.crash() from None
            raise
        except RpcError as error:
            raise classify_error(error, None) from error
        process.add(name, session)
        process.guard.add(name, session)
        return session

    async def crash(self) -> WorkerCrashed:
        return await self._process.crash()

    async def close(self) -> None:
        self._process.remove(self.id)
        self._process.guard.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT), suppress(WorkerError, RpcError, TimeoutError):
            if self._turn is not None:
                await self._process.client.abort(self.id)
            await self._process.connection.close_session(self.id)

    async def update(self, update: AnyUpdate) -> None:
        if self._turn:
            await self._turn.put_update(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        turn = self._turn
        if turn is None or turn.cancelled:
            return PermissionCancelled()
        matter, reply = await self.questions.ask_own(request, turn.put)
        if reply.answer == "reject" and not reply.message:
            turn.rejected = matter
        return permission_outcome(request, reply.answer)

    async def hear_question(self, question: PendingQuestion) -> None:
        if question.session != self.id:  # its own are brought by ACP
            await super().hear_question(question)

    async def hear(self, told: ServerEvent) -> None:
        match told:
            case SessionStatus(status=status) if status.type == "retry":
                await self._report_retry(status)
            case SessionError(error=error) if self._turn:
                self._turn.note_fault(error)
            case Connected():
                self._second_look.missed = True
            case _:
                pass

    @property
    def _pid(self) -> int:
        return self._process.pid

    async def _ask_to_stop(self) -> None:
        await self._process.connection.cancel(self.id)

    async def _set_model(self, options: OfferedOptions) -> None:
        model = self._spec.provider.opencode_model
        try:
            await self._process.connection.set_model(self.id, model)
        except UnknownModel as error:
            option = find_option(options, "model")
            known = [c.value for c in option.choices if c.value != WARM] if option else []
            more = f" and {len(known) - MAX_NAMES} more" if len(known) > MAX_NAMES else ""
            names = ", ".join(known[:MAX_NAMES]) or "none"
            raise UnknownModel(f"{error}; it has: {names}{more}") from error

    def _blocks(self, prompt: Prompt) -> Sequence[ContentBlock]:
        text = f"Task:\n{prompt.text}" if _SLASH.match(prompt.text) else prompt.text
        paths = self._attached(prompt)
        links = [ResourceLink(uri=path.as_uri(), name=path.name) for path in paths]
        return [AcpText(text=text), *links]

    async def _run_turn(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        try:
            await turn.run_prompt(
                lambda: self._process.connection.prompt(self.id, self._blocks(prompt))
            )
            if isinstance(turn.error, WorkerCrashed):
                for name in self.questions.withdraw():
                    await turn.put(PermissionWithdrawn(id=name, reason=LOST))
        finally:
            turn.close()

    async def _end_of_turn(self, turn: OpenCodeTurn) -> TurnStopReason:
        if isinstance(turn.error, WorkerCrashed):
            raise await self._process.crash() from turn.error
        self._check_rejected(turn)
        if turn.cancelled or turn.stop_reason == "cancelled":
            return "cancelled"
        if isinstance(turn.error, RpcError):
            raise classify_error(turn.error, await turn.last_fault(LATE_UPDATE_S)) from turn.error
        if turn.error:
            raise turn.error
        if turn.stop_reason == "refusal":
            raise ModelRefused(f"{self._spec.provider.opencode_model} refused to answer")
        self._check(turn)
        return "end"


async def _open(process: AcpProcess, spec: WorkerSpec) -> tuple[str, OfferedOptions]:
    if spec.resume is None:
        new = await process.connection.new_session(str(spec.cwd))
        return new.session_id, new.config_options
    try:
        # Not `session/load`: what has been said was told when it was said.
        opened = await process.connection.resume_session(spec.resume, str(spec.cwd))
    except RpcError as error:
        if error.code == AUTH_REQUIRED:
            raise
        raise WorkerError(
            f"OpenCode has no session {spec.resume!r} that it could go on with: {error.message}"
        ) from error
    return spec.resume, opened.config_options


class AcpHost(AcpProcess):
    """The process, as the pool has it."""

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        return await AcpSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        await boot_directory(self, gate, cwd)
