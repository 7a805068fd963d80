"""How is one request answered? By the script, or by the fault that the script wants."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

import anyio

from goent.domain.types import Dialect
from goent.testing.anthropic import Anthropic
from goent.testing.calls import Call, CallLog, Gates, share
from goent.testing.http import Connection, Request
from goent.testing.openai import OpenAI
from goent.testing.playbook import Cue, admit, compose, find_cue
from goent.testing.script import Fault, Script
from goent.testing.wire import Frame, Refused, Reply, Wire

HANG = 600.0  # seconds of silence, if the client does not go before
WIRES: Mapping[Dialect, Wire] = {"openai": OpenAI(), "anthropic": Anthropic()}
_PAGE = b"<!doctype html><html><title>502</title><h1>Bad gateway</h1></html>\n"
_BROKEN = b'data: {"choices": [{"delta": {"content": "bro\n\n'


class Stage:
    """Where the script is played; all connections share it."""

    def __init__(self, script: Script, log: CallLog, gates: Gates) -> None:
        self._script = script
        self._log = log
        self._gates = gates
        self._strikes: Counter[tuple[str, str | None, str | None, int]] = Counter()

    async def answer(self, connection: Connection, request: Request) -> bool:
        """Answer one request, and write down what became of it; False if the client left."""
        path = request.path.partition("?")[0]
        name, _, endpoint = path.removeprefix("/").partition("/v1")
        provider = self._script.providers.get(name)
        wire = WIRES[provider.dialect if provider else "openai"]
        n = len(self._log.calls) + 1
        self._log.add(
            Call(
                n=n,
                provider=name,
                path=path,
                started=time.time(),
                key=wire.key(request.headers),
                session=request.headers.get("x-session-id"),
                parent=request.headers.get("x-parent-session-id"),
            )
        )
        known = provider and request.method == "POST" and endpoint == wire.endpoint
        play = self._play if known else self._miss
        ended = await connection.while_connected(partial(play, connection, request, wire, n))
        self._log.change(n, ended=time.time(), disconnected=not ended)
        return ended

    async def _miss(self, connection: Connection, request: Request, wire: Wire, n: int) -> None:
        known = ", ".join(
            f"POST /{name}/v1{WIRES[provider.dialect].endpoint}"
            for name, provider in self._script.providers.items()
        )
        where = f"{request.method} {request.path}"
        await self._refuse(connection, wire, n, Refused(404, f"nothing at {where!r}; try {known}"))

    async def _play(self, connection: Connection, request: Request, wire: Wire, n: int) -> None:
        call = self._log.calls[n - 1]
        provider = self._script.providers[call.provider]
        try:
            conversation = wire.conversation(request.body)
            self._log.change(n, request=conversation)
            admit(provider, call.key, conversation)
            cue = find_cue(provider, conversation)
            fault = self._fault(call, cue)
            kind = fault.kind if fault else None
            self._log.change(n, case=cue.case.when, step=cue.number, fault=kind)
            await self._wait(cue)
            reply = compose(cue.step, conversation, n=n, wire=wire)
            if fault and (kind == "status" or (kind == "error" and not conversation.stream)):
                raise _refusal(fault)
        except Refused as refused:
            await self._refuse(connection, wire, n, refused)
            return
        headers = wire.limits(provider.limits)
        performance = Performance(connection, wire, self._log, n, fault)
        await performance.give(reply, headers, stream=conversation.stream, pace=cue.step.pace)

    def _fault(self, call: Call, cue: Cue) -> Fault | None:
        fault = cue.step.fault
        if fault and fault.times is not None:
            place = (call.provider, call.session, cue.case.when, cue.number)
            self._strikes[place] += 1
            return fault if self._strikes[place] <= fault.times else None
        return fault

    async def _wait(self, cue: Cue) -> None:
        gate = cue.step.gate
        if gate and not await self._gates.pass_through(gate):
            raise Refused(400, f"nobody opened the gate {gate!r}")
        await anyio.sleep(cue.step.delay)

    async def _refuse(self, connection: Connection, wire: Wire, n: int, refused: Refused) -> None:
        self._log.change(n, status=refused.status)
        headers = {"content-type": "application/json"}
        if refused.retry_after is not None:
            headers["retry-after"] = f"{refused.retry_after:g}"
        body = wire.error(refused)
        await connection.begin(refused.status, headers, len(body))
        await connection.send(body)


class Performance:
    """One answer on its way out, and the fault that may strike it."""

    def __init__(
        self, connection: Connection, wire: Wire, log: CallLog, n: int, fault: Fault | None
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._log = log
        self._n = n
        self._fault = fault

    async def give(
        self, reply: Reply, headers: Mapping[str, str], *, stream: bool, pace: float
    ) -> None:
        fault = self._fault
        if fault and fault.kind in ("hang", "cut", "eof") and fault.after is None:
            await self._strike(fault, stream=False)
            return
        self._log.change(self._n, status=200)
        if fault and fault.kind == "garbage":
            await self._connection.begin(200, {"content-type": "text/html"}, len(_PAGE))
            await self._connection.send(_PAGE)
            return
        body = b"" if stream else self._whole(reply)
        label = "text/event-stream; charset=utf-8" if stream else "application/json"
        if fault and fault.kind == "mislabeled":
            label = "text/html"
        await self._connection.begin(
            200, {"content-type": label, **headers}, None if stream else len(body)
        )
        frames = tuple(self._wire.stream(reply) if stream else _halves(body))
        await self._send(frames, reply, stream=stream, pace=pace)

    async def _send(
        self, frames: tuple[Frame, ...], reply: Reply, *, stream: bool, pace: float
    ) -> None:
        total = sum(frame.kind == "piece" for frame in frames)
        sent = 0
        self._bill(reply, sent, total)
        for frame in frames:
            if frame.kind == "piece":
                await anyio.sleep(pace)
            if self._fault and _is_due(self._fault, frame, sent, stream=stream):
                await self._strike(self._fault, stream=stream)
                return
            await self._connection.send(frame.data)
            if frame.kind == "piece":
                sent += 1
                self._bill(reply, sent, total)
        await self._connection.finish()

    def _whole(self, reply: Reply) -> bytes:
        body = self._wire.whole(reply)
        broken = self._fault and self._fault.kind == "malformed"
        return body[: len(body) // 2] if broken else body

    def _bill(self, reply: Reply, sent: int, total: int) -> None:
        usage = share(reply.usage, sent=sent, of=total) if total else reply.usage
        self._log.change(self._n, pieces=sent, usage=usage)

    async def _strike(self, fault: Fault, *, stream: bool) -> None:
        if fault.kind == "hang":
            await anyio.sleep(HANG)
        if fault.kind == "error":
            await self._connection.send(self._wire.error_frame(_refusal(fault)))
        if fault.kind == "malformed":
            await self._connection.send(_BROKEN)
        if stream and fault.kind in ("error", "malformed", "eof"):
            await self._connection.finish()
        else:
            self._connection.close(reset=fault.kind != "eof")


def _is_due(fault: Fault, frame: Frame, sent: int, *, stream: bool) -> bool:
    if fault.kind == "mislabeled" or (fault.kind == "malformed" and not stream):
        return False  # these spoil the whole answer, not a place in it
    due = sent >= (fault.after or 0)
    return frame.kind == "close" or (frame.kind == "piece" and due)


def _halves(body: bytes) -> Iterator[Frame]:
    """A plain reply has one place to break at: its middle."""
    middle = len(body) // 2
    yield Frame(data=body[:middle], kind="piece")
    yield Frame(data=body[middle:], kind="close")


def _refusal(fault: Fault) -> Refused:
    return Refused(fault.status, fault.message, code=fault.code, retry_after=fault.retry_after)
