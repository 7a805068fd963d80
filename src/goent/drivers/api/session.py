"""One conversation with a model, kept here and sent whole with every prompt."""

import time
from collections.abc import Callable, Sequence

import anyio

from goent.domain.errors import ModelRefused, NothingSaid, RequestError
from goent.domain.events import Noticed, TextDelta, Thought
from goent.domain.ports import Emit, Signs, StopReason, WorkerSpec
from goent.domain.types import Answer, Prompt
from goent.drivers.api.attachments import attached
from goent.llm.codec import codec
from goent.llm.model_options import with_options
from goent.llm.talk import Message, ModelRequest, ReasoningPiece, Stopped, Text, TextPiece
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, Order
from goent.upstream.said import Streamed

SYSTEM = (
    "You answer one task for a lead who cannot see your thoughts. You have no tools: you cannot "
    "read files, run commands or change anything. Work with what the message holds, say plainly "
    "what is missing, and give the result itself, ready to use."
)


class ApiSession:
    """The port `Session`. There is nothing to resume it from: it lives as long as go-ent."""

    token = ""

    def __init__(self, spec: WorkerSpec, upstream: Upstream, course: Callable[[], Course]) -> None:
        self._spec = spec
        self._upstream = upstream
        self._course = course
        self._messages: tuple[Message, ...] = ()
        self._turn = 0
        self._scope = anyio.CancelScope()
        self._began = time.monotonic()

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        """A turn that fails leaves no trace in the conversation; a cancelled one what it said."""
        self._turn += 1
        self._began = time.monotonic()
        asked = Message(role="user", parts=await attached(prompt))
        heard = _Heard(emit, message=f"{self._spec.id}/{self._turn}")
        with anyio.CancelScope() as self._scope:
            course = self._course()
            await self._upstream.stream(self._order(course, asked), course, heard.take)
        cancelled = self._scope.cancelled_caught
        if not cancelled:
            await heard.check(self._spec.provider.opencode_model)
        said = Message(role="assistant", parts=(Text(text=heard.text),))
        self._messages = (*self._messages, asked, *([said] if heard.text else ()))
        return "cancelled" if cancelled else "end"

    def _order(self, course: Course, asked: Message) -> Order:
        target = course.targets[0]
        request = ModelRequest(
            model=target.provider.model,
            system=SYSTEM,
            messages=(*self._messages, asked),
            temperature=self._spec.temperature,
        )
        theirs = codec(target.dialect)
        return Order(
            worker=self._spec.id,
            backend=target.provider.backend,
            model=target.provider.model,
            dialect=target.dialect,
            headers=theirs.headers,
            body=theirs.encode(with_options(request, target.dialect, target.provider.options)),
        )

    async def cancel(self) -> None:
        """The connection is closed at once."""
        self._scope.cancel()

    async def answer(self, permission_id: str, option: Answer, message: str = "") -> bool:
        raise RequestError(f"a worker by api asks nothing: there is no {permission_id!r}")

    async def signs(self) -> Signs:
        """The upstream bounds every silence, so a turn under way is alive."""
        waited = time.monotonic() - self._began
        return Signs(alive=True, detail=f"waiting for the model for {waited:.0f} s")


class _Heard:
    """What the model says in one turn."""

    def __init__(self, emit: Emit, message: str) -> None:
        self._emit = emit
        self._message = message
        self._texts: list[str] = []
        self._reason = ""

    @property
    def text(self) -> str:
        return "".join(self._texts)

    async def take(self, pieces: Sequence[Streamed]) -> None:
        text = thought = ""
        for chunk in (chunk for piece in pieces for chunk in piece.chunks):
            match chunk:
                case TextPiece():
                    text += chunk.text
                case ReasoningPiece():
                    thought += chunk.text
                case Stopped():
                    self._reason = chunk.reason
                case _:
                    pass
        if thought:
            await self._emit(Thought(text=thought, message=self._message))
        if text:
            self._texts.append(text)
            await self._emit(TextDelta(text=text, message=self._message))

    async def check(self, model: str) -> None:
        """Is the answer one that the turn can end with?"""
        if self._reason == "refused":
            raise ModelRefused(f"{model} declined to answer: {self.text[:200]}".rstrip(": "))
        if not self.text.strip():
            raise NothingSaid(f"{model} ended its turn without a word")
        if self._reason == "length":
            notice = "the answer stops at the model's output limit: it is not whole"
            await self._emit(Noticed(text=notice))
