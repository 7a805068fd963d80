"""Requests in neither dialect, the steps that answer them, and the log of all calls."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Literal, Protocol

import anyio
import msgspec

from goent.domain.types import Usage, Value
from goent.testing.script import (
    Case,
    FaultKind,
    FinishReason,
    ScriptedProvider,
    ScriptedRateLimits,
    ScriptedToolUse,
    Step,
)

_WORKING_DIRECTORY = re.compile(r"^\s*Working directory: (.+?)\s*$", re.MULTILINE)


class ToolCall(Value, frozen=True, kw_only=True):
    """A tool call. `arguments` is JSON text, which may be invalid."""

    id: str
    name: str
    arguments: str


class Message(Value, frozen=True, kw_only=True):
    """One message. A tool's result is a separate message in both dialects."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Conversation(Value, frozen=True, kw_only=True):
    """A request for the next message."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    stream_usage: bool = False

    @property
    def prompt(self) -> str:
        """The last thing the user said."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def prefill(self) -> str:
        """The beginning of the answer, if the request ends with one to continue."""
        last = self.messages[-1] if self.messages else None
        continued = last and last.role == "assistant" and not last.tool_calls
        return last.text.rstrip() if last and continued else ""

    @property
    def step(self) -> int:
        """The number of complete answers since the last user message."""
        roles = [message.role for message in self.messages]
        since = roles[::-1].index("user") if "user" in roles else len(roles)
        answers = roles[len(roles) - since :].count("assistant")
        return answers - bool(self.prefill)

    @property
    def cwd(self) -> str | None:
        """The working directory that the system prompt names."""
        found = _WORKING_DIRECTORY.search(self.system)
        return found[1] if found else None


class ScriptedReply(Value, frozen=True, kw_only=True):
    """A step with its placeholders filled in and the usage that the dialect can express."""

    n: int
    model: str
    say: str
    think: str
    tools: tuple[ToolCall, ...]
    stop: FinishReason
    usage: Usage
    chunk: int
    stream_usage: bool


class ReplyFrame(Value, frozen=True, kw_only=True):
    """Bytes that are sent together. Only a `piece` carries content of the model."""

    data: bytes
    kind: Literal["open", "piece", "close"]


class VendorRefusal(Exception):
    """The request is answered with an HTTP error in the vendor's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after = retry_after

    @property
    def servers_fault(self) -> bool:
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class DialectWire(Protocol):
    """One dialect."""

    endpoint: str
    tool_id: str

    def key(self, headers: Mapping[str, str]) -> str | None: ...

    def conversation(self, body: bytes) -> Conversation:
        """Parse a request; raises `VendorRefusal` if it is invalid."""
        ...

    def billable(self, usage: Usage) -> Usage:
        """The same tokens in the fields that this dialect has."""
        ...

    def stream(self, reply: ScriptedReply) -> Iterator[ReplyFrame]: ...

    def whole(self, reply: ScriptedReply) -> bytes: ...

    def error(self, refused: VendorRefusal) -> bytes: ...

    def error_frame(self, refused: VendorRefusal) -> bytes:
        """The error as an event of a stream."""
        ...

    def limits(self, limits: ScriptedRateLimits) -> dict[str, str]:
        """The headers that state the rate limits."""
        ...


def text_pieces(text: str, size: int) -> Iterator[str]:
    """The pieces in which a text is streamed."""
    return (text[start : start + size] for start in range(0, len(text), size))


class ScriptPosition(Value, frozen=True, kw_only=True):
    """A place in the script: the case, the number of the step in it, and the step."""

    case: Case
    number: int
    step: Step


def check_access(provider: ScriptedProvider, key: str | None, conversation: Conversation) -> None:
    """Require the key and a known model, as the vendor would."""
    if provider.key is not None and key != provider.key:
        raise VendorRefusal(401, f"the key {key!r} is not the one in the script")
    if conversation.model not in provider.models:
        known = ", ".join(provider.models)
        raise VendorRefusal(404, f"the model {conversation.model!r} does not exist; known: {known}")


def find_position(provider: ScriptedProvider, conversation: Conversation) -> ScriptPosition:
    """Find the step; without one the request is refused with 400, which no client retries."""
    prompt = conversation.prompt
    case = next((c for c in provider.cases if c.when is None or c.when in prompt), None)
    if case is None:
        raise VendorRefusal(400, f"the script has no case for {prompt[:200]!r}")
    number = min(conversation.step, len(case.steps) - 1) if case.repeat else conversation.step
    if number >= len(case.steps):
        raise VendorRefusal(400, f"the script has no step {number} in its case {case.when!r}")
    return ScriptPosition(case=case, number=number, step=case.steps[number])


def compose_reply(
    step: Step, conversation: Conversation, *, n: int, wire: DialectWire
) -> ScriptedReply:
    """Fill in the step; an answer that the request begins is continued from there."""
    places = {"n": str(n), "model": conversation.model, "prompt": conversation.prompt}
    if conversation.cwd is not None:
        places["cwd"] = conversation.cwd
    say = _fill(step.say, places)
    prefill = conversation.prefill
    return ScriptedReply(
        n=n,
        model=conversation.model,
        say=say.removeprefix(prefill),
        think="" if prefill else _fill(step.think, places),
        tools=tuple(
            ToolCall(id=f"{wire.tool_id}_{n}_{i}", name=use.tool, arguments=_arguments(use, places))
            for i, use in enumerate(step.tools)
        ),
        stop=step.finish,
        usage=wire.billable(step.usage),
        chunk=step.chunk,
        stream_usage=conversation.stream_usage,
    )


def _arguments(use: ScriptedToolUse, places: dict[str, str]) -> str:
    escaped = {name: msgspec.json.encode(value).decode()[1:-1] for name, value in places.items()}
    return _fill(msgspec.json.encode(use.input).decode(), escaped)


def _fill(text: str, places: dict[str, str]) -> str:
    if "{cwd}" in text and "cwd" not in places:
        raise VendorRefusal(
            400, "the script uses {cwd}, but the system prompt has no working directory"
        )
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text


WAIT_S = 10.0  # seconds a test waits unless it says otherwise
GATE_S = 60.0  # seconds a request waits at a closed gate


class Call(Value, frozen=True, kw_only=True):
    """One request and its outcome; `ended` is None while it is in progress.

    `usage` is what the vendor bills: all of it for a complete answer, nothing if none began, and
    otherwise the whole prompt and the part of the output that was sent. `pieces` counts the parts
    of the answer that were sent.
    """

    n: int
    provider: str
    path: str
    started: float
    key: str | None = None
    session: str | None = None
    parent: str | None = None
    request: Conversation | None = None
    case: str | None = None
    step: int | None = None
    fault: FaultKind | None = None
    status: int | None = None
    pieces: int = 0
    usage: Usage = Usage()
    ended: float | None = None
    disconnected: bool = False

    @property
    def model(self) -> str | None:
        return self.request.model if self.request else None

    def __str__(self) -> str:
        place = f"case {self.case!r} step {self.step}" if self.step is not None else "no step"
        state = "in progress" if self.ended is None else "gone" if self.disconnected else "ended"
        return f"#{self.n} {self.provider}/{self.model} {place} status {self.status} {state}"


def partial_usage(usage: Usage, *, sent: int, of: int) -> Usage:
    """The bill for a part of an answer: the whole prompt, and the output that was sent."""
    return msgspec.structs.replace(
        usage, output=usage.output * sent // of, reasoning=usage.reasoning * sent // of
    )


class CallLog:
    """All calls in order of arrival, and waiting for changes to them."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._changed = anyio.Event()

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.notify()

    def change(self, n: int, **changes: object) -> Call:
        call = msgspec.structs.replace(self.calls[n - 1], **changes)
        self.calls[n - 1] = call
        self.notify()
        return call

    async def wait_until(self, done: Callable[[], bool], what: str, timeout: float) -> None:  # noqa: ASYNC109 (the bound belongs to the barrier: its error tells what was seen)
        try:
            with anyio.fail_after(timeout):
                while not done():
                    await self._changed.wait()
        except TimeoutError as error:
            seen = "; ".join(map(str, self.calls)) or "nothing"
            raise TimeoutError(f"{what} within {timeout:g} s; seen: {seen}") from error

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Gates:
    """The gates of a script, which a test opens. An open gate stays open."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._notify = arrived
        self._gates: dict[str, anyio.Event] = {}
        self._arrived: Counter[str] = Counter()

    def open(self, name: str) -> None:
        self._gates.setdefault(name, anyio.Event()).set()

    def arrived(self, name: str) -> int:
        return self._arrived[name]

    async def pass_through(self, name: str) -> bool:
        """Wait at the gate; False if nobody opened it."""
        self._arrived[name] += 1
        self._notify()
        with anyio.move_on_after(GATE_S):
            await self._gates.setdefault(name, anyio.Event()).wait()
            return True
        return False
