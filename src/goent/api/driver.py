"""Runs workers that are one model call a turn: no program, no tools."""

import base64
import mimetypes
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from goent.domain.errors import ModelRefused, NothingSaid, RequestError
from goent.domain.events import Noticed, TextDelta, Thought
from goent.domain.ports import Emit, TurnStopReason, WorkerLiveness, WorkerSession, WorkerSpec
from goent.domain.types import PermissionAnswer, Prompt
from goent.providers.call_plan import CallPlan, InboundCall
from goent.providers.call_translation import StreamPiece
from goent.providers.dialects import codec_for, with_model_options
from goent.providers.model_messages import (
    ChatMessage,
    MessageImage,
    MessagePart,
    MessageText,
    ModelRequest,
    ReasoningPiece,
    StopPiece,
    TextPiece,
)
from goent.providers.upstream import Upstream
from goent.system.plain_files import NotPlainFile, read_beginning

MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_IMAGE_BYTES = 5 * 1024 * 1024  # what both vendors take
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def read_attachments(prompt: Prompt) -> tuple[MessagePart, ...]:
    """The files' contents, each with its name, and then the prompt."""
    parts = await anyio.to_thread.run_sync(
        lambda: [_read_attachment(Path(name)) for name in prompt.files]
    )
    return (*parts, MessageText(text=prompt.text))


def _read_attachment(path: Path) -> MessagePart:
    kind = mimetypes.guess_type(path.name)[0] or ""
    most = MAX_IMAGE_BYTES if kind in IMAGES else MAX_FILE_BYTES
    try:
        if path.is_dir():
            raise RequestError(f"{str(path)!r} is a directory: a worker by api takes only files")
        content = read_beginning(path, most + 1)
    except NotPlainFile as error:
        raise RequestError(str(error)) from None
    except OSError as error:
        raise RequestError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise RequestError(f"{str(path)!r} is larger than the {most} bytes that a prompt can carry")
    if kind in IMAGES:
        return MessageImage(media_type=kind, data=base64.b64encode(content).decode())
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RequestError(
            f"{str(path)!r} is neither text nor an image: a model cannot read it"
        ) from None
    return MessageText(text=f'<file path="{path}">\n{text}\n</file>')


SYSTEM = (
    "You answer one task for a lead who cannot see your thoughts. You have no tools: you cannot "
    "read files, run commands or change anything. Work with what the message holds, say plainly "
    "what is missing, and give the result itself, ready to use."
)


class ApiSession:
    """The port `Session`. It cannot be resumed: it lives as long as go-ent."""

    token = ""

    def __init__(self, spec: WorkerSpec, upstream: Upstream, plan: Callable[[], CallPlan]) -> None:
        self._spec = spec
        self._upstream = upstream
        self._plan = plan
        self._messages: tuple[ChatMessage, ...] = ()
        self._turn = 0
        self._scope = anyio.CancelScope()
        self._began = time.monotonic()

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        """A failed turn leaves nothing in the conversation, a cancelled one its answer so far."""
        self._turn += 1
        self._began = time.monotonic()
        asked = ChatMessage(role="user", parts=await read_attachments(prompt))
        reply = _ReplyReader(emit, message=f"{self._spec.id}/{self._turn}")
        with anyio.CancelScope() as self._scope:
            plan = self._plan()
            await self._upstream.stream(self._call(plan, asked), plan, reply.take)
        cancelled = self._scope.cancelled_caught
        if not cancelled:
            await reply.check(self._spec.provider.opencode_model)
        answer = ChatMessage(role="assistant", parts=(MessageText(text=reply.text),))
        self._messages = (*self._messages, asked, *([answer] if reply.text else ()))
        return "cancelled" if cancelled else "end"

    def _call(self, plan: CallPlan, asked: ChatMessage) -> InboundCall:
        target = plan.targets[0]
        request = ModelRequest(
            model=target.provider.model,
            system=SYSTEM,
            messages=(*self._messages, asked),
            temperature=self._spec.temperature,
        )
        codec = codec_for(target.dialect)
        return InboundCall(
            worker=self._spec.id,
            backend=target.provider.backend,
            model=target.provider.model,
            dialect=target.dialect,
            headers=codec.headers,
            body=codec.encode(with_model_options(request, target.dialect, target.provider.options)),
        )

    async def cancel(self) -> None:
        """Close the connection immediately."""
        self._scope.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        raise RequestError(f"a worker by api asks nothing: there is no {permission_id!r}")

    async def liveness(self) -> WorkerLiveness:
        """Always alive: the upstream has timeouts for every silence."""
        waited = time.monotonic() - self._began
        return WorkerLiveness(alive=True, detail=f"waiting for the model for {waited:.0f} s")


class _ReplyReader:
    """Emits and collects the model's answer of one turn."""

    def __init__(self, emit: Emit, message: str) -> None:
        self._emit = emit
        self._message = message
        self._texts: list[str] = []
        self._reason = ""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    async def take(self, pieces: Sequence[StreamPiece]) -> None:
        text = thought = ""
        for chunk in (chunk for piece in pieces for chunk in piece.chunks):
            match chunk:
                case TextPiece():
                    text += chunk.text
                case ReasoningPiece():
                    thought += chunk.text
                case StopPiece():
                    self._reason = chunk.reason
                case _:
                    pass
        if thought:
            await self._emit(Thought(text=thought, message=self._message))
        if text:
            self._texts.append(text)
            await self._emit(TextDelta(text=text, message=self._message))

    async def check(self, model: str) -> None:
        """Raises an error if the turn cannot end with this answer."""
        if self._reason == "refused":
            raise ModelRefused(f"{model} declined to answer: {self.text[:200]}".rstrip(": "))
        if not self.text.strip():
            raise NothingSaid(f"{model} ended its turn without a word")
        if self._reason == "length":
            notice = "the answer stops at the model's output limit: it is incomplete"
            await self._emit(Noticed(text=notice))


PlanCourse = Callable[[str, str, str], CallPlan]


class ApiDriver:
    """The port `Driver`, by direct calls. `plan` says where a worker's calls may go."""

    def __init__(self, upstream: Upstream, plan: PlanCourse) -> None:
        self._upstream = upstream
        self._plan = plan

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[WorkerSession]:
        def plan() -> CallPlan:
            return self._plan(spec.id, spec.provider.backend, spec.provider.model)

        plan()  # reports a missing key now, not at the first prompt
        yield ApiSession(spec, self._upstream, plan)
