"""Serves scripted models over HTTP on a loopback port, faults included.

h11 reads the requests. Answers are written to the socket directly, because faults need it: to reset a
connection in the middle of a stream, for instance.
"""

import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from types import TracebackType
from typing import Self

import anyio
import h11
from anyio.abc import TaskGroup

from goent.domain.types import Dialect, Usage, Value
from goent.testing.script import Fault, Script
from goent.testing.scripted_calls import (
    WAIT_S,
    Call,
    CallLog,
    DialectWire,
    Gates,
    ReplyFrame,
    ScriptedReply,
    ScriptPosition,
    VendorRefusal,
    check_access,
    compose_reply,
    find_position,
    partial_usage,
)
from goent.testing.scripted_dialects import Anthropic, OpenAI

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024
IDLE_S = 300.0  # seconds for a request to arrive on an open connection
STUCK_S = 60.0  # seconds for a client to read what was sent
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class BadRequest(Exception):
    """The client sent something that is not HTTP/1.1."""


class ClientGone(Exception):
    """The client closed or reset the connection."""


class ClientRequest(Value, frozen=True, kw_only=True):
    """One request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool


class SocketConnection:
    """One client's socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = sock
        self._buffer = bytearray()
        self._chunked = False

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    async def request(self) -> ClientRequest | None:
        """The next request, or None if the client has no more."""
        parser = h11.Connection(h11.SERVER, HEAD_LIMIT)
        head: h11.Request | None = None
        body = bytearray()
        with anyio.move_on_after(IDLE_S), suppress(ClientGone):
            while not isinstance(event := _next_event(parser), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    if not self._buffer:
                        await self._receive()
                    parser.receive_data(bytes(self._buffer))
                    self._buffer.clear()
                elif isinstance(event, h11.Request):
                    head = event
                    _check_length(int(dict(head.headers).get(b"content-length", b"0")))
                    if parser.they_are_waiting_for_100_continue:
                        await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                elif isinstance(event, h11.Data):
                    body += event.data
                    _check_length(len(body))
            assert head, "comes before the end of its message"
            self._buffer[:0] = parser.trailing_data[0]
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            closing = "close" in headers.get("connection", "").lower()
            return ClientRequest(
                method=head.method.decode(),
                path=head.target.decode(),
                headers=headers,
                body=bytes(body),
                keep_alive=head.http_version == b"1.1" and not closing,
            )
        return None

    async def begin(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        """Send the head. Without a length, the body goes in chunks until `finish`."""
        self._chunked = length is None
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        lines = [f"HTTP/1.1 {status} {_phrase(status)}", framing]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        await self.write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, data: bytes) -> None:
        """Send a part of the body."""
        await self.write(b"%x\r\n%s\r\n" % (len(data), data) if self._chunked else data)

    async def finish(self) -> None:
        if self._chunked:
            await self.write(b"0\r\n\r\n")

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            with anyio.fail_after(STUCK_S):
                while rest:
                    try:
                        rest = rest[self._sock.send(rest) :]
                    except BlockingIOError:
                        await anyio.wait_writable(self._sock)
        except OSError as error:  # also `TimeoutError`: the client does not read
            raise ClientGone from error

    async def while_connected(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work until it ends or the client leaves; True if it ended."""
        ended = False
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                with suppress(ClientGone):
                    while True:
                        await self._receive()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            with suppress(ClientGone):
                await work()
                ended = True
            tasks.cancel_scope.cancel()
        return ended

    def close(self, *, reset: bool = False) -> None:
        """Close the connection, or reset it."""
        if self.closed:
            return
        if reset:
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        anyio.notify_closing(self._sock)
        self._sock.close()

    async def _receive(self) -> None:
        try:
            while True:
                try:
                    data = self._sock.recv(64 * 1024)
                    break
                except BlockingIOError:
                    await anyio.wait_readable(self._sock)
        except (OSError, anyio.ClosedResourceError) as error:
            raise ClientGone from error
        if not data:
            raise ClientGone
        self._buffer += data


def _next_event(parser: h11.Connection) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    try:
        return parser.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(str(error)) from None


def _check_length(length: int) -> None:
    if length > BODY_LIMIT:
        raise BadRequest(f"the body is longer than {BODY_LIMIT} bytes")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"


HANG_S = 600.0  # seconds of silence, unless the client leaves before
WIRES: Mapping[Dialect, DialectWire] = {"openai": OpenAI(), "anthropic": Anthropic()}
_ERROR_PAGE = b"<!doctype html><html><title>502</title><h1>Bad gateway</h1></html>\n"
_BROKEN_FRAME = b'data: {"choices": [{"delta": {"content": "bro\n\n'


class ScriptStage:
    """Answers requests by the script; all connections share it."""

    def __init__(self, script: Script, log: CallLog, gates: Gates) -> None:
        self._script = script
        self._log = log
        self._gates = gates
        self._fault_counts: Counter[tuple[str, str | None, str | None, int]] = Counter()

    async def answer(self, connection: SocketConnection, request: ClientRequest) -> bool:
        """Answer one request and log its outcome; False if the client left."""
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
        answer = self._answer_known if known else self._answer_unknown
        ended = await connection.while_connected(partial(answer, connection, request, wire, n))
        self._log.change(n, ended=time.time(), disconnected=not ended)
        return ended

    async def _answer_unknown(
        self, connection: SocketConnection, request: ClientRequest, wire: DialectWire, n: int
    ) -> None:
        known = ", ".join(
            f"POST /{name}/v1{WIRES[provider.dialect].endpoint}"
            for name, provider in self._script.providers.items()
        )
        where = f"{request.method} {request.path}"
        await self._refuse(
            connection, wire, n, VendorRefusal(404, f"nothing at {where!r}; try {known}")
        )

    async def _answer_known(
        self, connection: SocketConnection, request: ClientRequest, wire: DialectWire, n: int
    ) -> None:
        call = self._log.calls[n - 1]
        provider = self._script.providers[call.provider]
        try:
            conversation = wire.conversation(request.body)
            self._log.change(n, request=conversation)
            check_access(provider, call.key, conversation)
            position = find_position(provider, conversation)
            fault = self._fault(call, position)
            kind = fault.kind if fault else None
            self._log.change(n, case=position.case.when, step=position.number, fault=kind)
            await self._wait(position)
            reply = compose_reply(position.step, conversation, n=n, wire=wire)
            if fault and (kind == "status" or (kind == "error" and not conversation.stream)):
                raise _refusal(fault)
        except VendorRefusal as refused:
            await self._refuse(connection, wire, n, refused)
            return
        headers = wire.limits(provider.limits)
        sender = ReplySender(connection, wire, self._log, n, fault)
        await sender.send(reply, headers, stream=conversation.stream, pace=position.step.pace)

    def _fault(self, call: Call, position: ScriptPosition) -> Fault | None:
        fault = position.step.fault
        if fault and fault.times is not None:
            place = (call.provider, call.session, position.case.when, position.number)
            self._fault_counts[place] += 1
            return fault if self._fault_counts[place] <= fault.times else None
        return fault

    async def _wait(self, position: ScriptPosition) -> None:
        gate = position.step.gate
        if gate and not await self._gates.pass_through(gate):
            raise VendorRefusal(400, f"nobody opened the gate {gate!r}")
        await anyio.sleep(position.step.delay)

    async def _refuse(
        self, connection: SocketConnection, wire: DialectWire, n: int, refused: VendorRefusal
    ) -> None:
        self._log.change(n, status=refused.status)
        headers = {"content-type": "application/json"}
        if refused.retry_after is not None:
            headers["retry-after"] = f"{refused.retry_after:g}"
        body = wire.error(refused)
        await connection.begin(refused.status, headers, len(body))
        await connection.send(body)


class ReplySender:
    """Sends one answer, with its fault if it has one."""

    def __init__(
        self,
        connection: SocketConnection,
        wire: DialectWire,
        log: CallLog,
        n: int,
        fault: Fault | None,
    ) -> None:
        self._connection = connection
        self._wire = wire
        self._log = log
        self._n = n
        self._fault = fault

    async def send(
        self, reply: ScriptedReply, headers: Mapping[str, str], *, stream: bool, pace: float
    ) -> None:
        fault = self._fault
        if fault and fault.kind in ("hang", "cut", "eof") and fault.after is None:
            await self._inject_fault(fault, stream=False)
            return
        self._log.change(self._n, status=200)
        if fault and fault.kind == "garbage":
            await self._connection.begin(200, {"content-type": "text/html"}, len(_ERROR_PAGE))
            await self._connection.send(_ERROR_PAGE)
            return
        body = b"" if stream else self._whole(reply)
        label = "text/event-stream; charset=utf-8" if stream else "application/json"
        if fault and fault.kind == "mislabeled":
            label = "text/html"
        await self._connection.begin(
            200, {"content-type": label, **headers}, None if stream else len(body)
        )
        frames = tuple(self._wire.stream(reply) if stream else _halves(body))
        await self._send_frames(frames, reply, stream=stream, pace=pace)

    async def _send_frames(
        self, frames: tuple[ReplyFrame, ...], reply: ScriptedReply, *, stream: bool, pace: float
    ) -> None:
        total = sum(frame.kind == "piece" for frame in frames)
        sent = 0
        self._bill(reply, sent, total)
        for frame in frames:
            if frame.kind == "piece":
                await anyio.sleep(pace)
            if self._fault and _is_due(self._fault, frame, sent, stream=stream):
                await self._inject_fault(self._fault, stream=stream)
                return
            await self._connection.send(frame.data)
            if frame.kind == "piece":
                sent += 1
                self._bill(reply, sent, total)
        await self._connection.finish()

    def _whole(self, reply: ScriptedReply) -> bytes:
        body = self._wire.whole(reply)
        broken = self._fault and self._fault.kind == "malformed"
        return body[: len(body) // 2] if broken else body

    def _bill(self, reply: ScriptedReply, sent: int, total: int) -> None:
        usage = partial_usage(reply.usage, sent=sent, of=total) if total else reply.usage
        self._log.change(self._n, pieces=sent, usage=usage)

    async def _inject_fault(self, fault: Fault, *, stream: bool) -> None:
        if fault.kind == "hang":
            await anyio.sleep(HANG_S)
        if fault.kind == "error":
            await self._connection.send(self._wire.error_frame(_refusal(fault)))
        if fault.kind == "malformed":
            await self._connection.send(_BROKEN_FRAME)
        if stream and fault.kind in ("error", "malformed", "eof"):
            await self._connection.finish()
        else:
            self._connection.close(reset=fault.kind != "eof")


def _is_due(fault: Fault, frame: ReplyFrame, sent: int, *, stream: bool) -> bool:
    if fault.kind == "mislabeled" or (fault.kind == "malformed" and not stream):
        return False  # these affect the whole answer
    due = sent >= (fault.after or 0)
    return frame.kind == "close" or (frame.kind == "piece" and due)


def _halves(body: bytes) -> Iterator[ReplyFrame]:
    """An answer that is not streamed can break in the middle."""
    middle = len(body) // 2
    yield ReplyFrame(data=body[:middle], kind="piece")
    yield ReplyFrame(data=body[middle:], kind="close")


def _refusal(fault: Fault) -> VendorRefusal:
    return VendorRefusal(
        fault.status, fault.message, code=fault.code, retry_after=fault.retry_after
    )


class ScriptedModels:
    """A server of scripted models: `async with ScriptedModels(script) as server: …`."""

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.script = script
        self._log = CallLog()
        self._gates = Gates(self._log.notify)
        self._stage = ScriptStage(script, self._log, self._gates)
        self._wanted_port = port
        self._listener: socket.socket | None = None
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self._wanted_port), backlog=512)
        self._listener.settimeout(0)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._accept, self._listener, self._tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks and self._listener
        self._tasks.cancel_scope.cancel()
        try:
            # The group would wrap the body's error, which a test wants to see as it is.
            await self._tasks.__aexit__(None, None, None)
        finally:
            self._listener.close()

    @property
    def url(self) -> str:
        if self._listener is None:
            raise RuntimeError("the server has no address before `async with`")
        host, port = self._listener.getsockname()
        return f"http://{host}:{port}"

    def base_url(self, provider: str) -> str:
        """The base URL for a client of this provider."""
        if provider not in self.script.providers:
            known = ", ".join(self.script.providers)
            raise KeyError(f"{provider!r} is not in the script; it has: {known}")
        return f"{self.url}/{provider}/v1"

    @property
    def calls(self) -> Sequence[Call]:
        """Every request so far, in order of arrival."""
        return self._log.calls

    def billed(self, provider: str | None = None, session: str | None = None) -> Usage:
        """The server's count of all tokens, or of one provider's or session's."""
        chosen = (
            call.usage
            for call in self.calls
            if provider in (None, call.provider) and session in (None, call.session)
        )
        return sum(chosen, Usage())

    async def called(self, n: int = 1, *, timeout: float = WAIT_S) -> Sequence[Call]:  # noqa: ASYNC109 (a barrier's bound is part of its error)
        """Wait until `n` requests have arrived."""
        await self._log.wait_until(lambda: len(self.calls) >= n, f"not {n} calls", timeout)
        return self.calls

    async def wait_for(
        self,
        wanted: Callable[[Call], bool],
        *,
        timeout: float = WAIT_S,  # noqa: ASYNC109 (a barrier's bound is part of its error)
    ) -> Call:
        """Wait for a call that is as wanted, and return the first one."""
        await self._log.wait_until(lambda: any(map(wanted, self.calls)), "no such call", timeout)
        return next(filter(wanted, self.calls))

    def open_gate(self, name: str) -> None:
        """Let requests pass `gate: name`, now and later."""
        self._gates.open(name)

    async def at_gate(self, name: str, n: int = 1, *, timeout: float = WAIT_S) -> None:  # noqa: ASYNC109 (a barrier's bound is part of its error)
        """Wait until `n` requests have reached the gate."""
        what = f"not {n} at the gate {name!r}"
        await self._log.wait_until(lambda: self._gates.arrived(name) >= n, what, timeout)

    async def _accept(self, listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            with suppress(BlockingIOError, ConnectionAbortedError):
                tasks.start_soon(self._serve, SocketConnection(listener.accept()[0]))

    async def _serve(self, connection: SocketConnection) -> None:
        try:
            while request := await connection.request():
                ended = await self._stage.answer(connection, request)
                if not ended or connection.closed or not request.keep_alive:
                    break
        except BadRequest as error:
            message = str(error).encode()
            with suppress(ClientGone):
                await connection.begin(400, {"content-type": "text/plain"}, len(message))
                await connection.send(message)
        finally:
            connection.close()
