"""The loopback server for model calls: admits a request, finds its worker, passes it on."""

import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import quote

import anyio
import msgspec
from msgspec import Struct

from goent.domain.errors import AtLimit, ProviderRefused, WorkerError
from goent.domain.ports import GuardedCall, GuardVerdict, ToolGuard
from goent.domain.types import Dialect, Usage
from goent.gateway import asgi
from goent.gateway.asgi import (
    AsgiScope,
    ClientHungUp,
    GatewayRequest,
    Receive,
    RequestRefused,
    Send,
)
from goent.gateway.loopback_server import BACKLOG, LoopbackServer
from goent.gateway.response_writer import OpenCalls, answer_call
from goent.providers.call_plan import CallPlan, ForeignBackend, InboundCall, UnknownBackend
from goent.providers.connections import AnswerTooLarge, MemoryShare, ModelCall, read_whole
from goent.providers.dialects import codec_for
from goent.providers.gateway_errors import gateway_refusal, mask_retry_words
from goent.providers.model_messages import AnswerChunk, StopPiece, TextPiece, UsagePiece
from goent.providers.upstream import Upstream

MAX_PARALLEL = 256  # requests of one token


class CallOwner(NamedTuple):
    """Who pays for a call; the gateway itself answers `warm` calls, which nobody pays for."""

    worker: str
    warm: bool = False


class TokenHolder:
    """The process that holds one token."""

    def __init__(self) -> None:
        self.sessions: dict[str, CallOwner] = {}
        self.guard: ToolGuard | None = None
        self._last: CallOwner | None = None
        self._in_progress = 0

    @contextmanager
    def track_request(self) -> Generator[None]:
        """Count a request of the process. Raises `RequestRefused` if there are too many."""
        if self._in_progress >= MAX_PARALLEL:
            raise RequestRefused(
                429, f"{MAX_PARALLEL} requests with this key are in progress: try again"
            )
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1

    def bind_session(self, session: str, owner: CallOwner) -> None:
        self.sessions.pop(session, None)  # keeps them in the order in which they were bound
        self.sessions[session] = owner
        if not owner.warm:
            self._last = owner

    def owners(self, *, session: str, parent: str) -> tuple[CallOwner, ...]:
        """Who may have made a call, the likeliest first; empty if no worker was ever bound.

        The parent's owner pays for a child session. An unknown session belongs to one of the
        process's workers, most likely to the one that was bound last.
        """
        if known := self.sessions.get(parent) or self.sessions.get(session):
            return (known,)
        bound = [owner for owner in reversed(self.sessions.values()) if not owner.warm]
        return tuple(dict.fromkeys(bound)) or ((self._last,) if self._last else ())


GUARD_BACKEND = "goent-guard"


class _GuardHello(Struct):
    directory: str


class _ShellQuestion(Struct):
    owner: str


class _FailedCommand(Struct):
    owner: str
    output: str


class _HintReply(Struct):
    hint: str


async def answer_guard(
    request: GatewayRequest,
    guard: ToolGuard | None,
    receive: Receive,
    send: Send,
    share: MemoryShare,
) -> None:
    """Answer one request of a guard. Without somebody who decides, nothing is allowed."""
    body = await asgi.read_body(receive, share)
    if guard is None:
        raise RequestRefused(403, "no guard is set for the tool calls of this process")
    try:
        match request.method, request.path:
            case "POST", "hello":
                guard.mark_loaded(msgspec.json.decode(body, type=_GuardHello).directory)
                answer: object = GuardVerdict(allow=True)
            case "POST", "shell":
                answer = guard.shell_environment(
                    msgspec.json.decode(body, type=_ShellQuestion).owner
                )
            case "POST", "hint":
                failed = msgspec.json.decode(body, type=_FailedCommand)
                answer = _HintReply(hint=guard.hint(failed.owner, failed.output))
            case "POST", "call":
                call = msgspec.json.decode(body, type=GuardedCall)
                answer = await _await_verdict(guard, call, receive)
            case _:
                raise RequestRefused(404, f"{request.method} {request.path!r} is not offered here")
    except msgspec.DecodeError as error:
        raise RequestRefused(400, f"the guard's message cannot be read: {error}") from error
    await asgi.send_reply(send, 200, asgi.JSON_HEADERS, msgspec.json.encode(answer))


async def _await_verdict(guard: ToolGuard, call: GuardedCall, receive: Receive) -> GuardVerdict:
    """The verdict; raises `ClientHungUp` if the process that asked is gone before."""
    verdict: GuardVerdict | None = None

    async def give_up() -> None:
        await asgi.wait_for_hang_up(receive)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        verdict = await guard.judge(call)
        tasks.cancel_scope.cancel()
    if verdict is None:
        raise ClientHungUp
    return verdict


CANNED_PIECES: tuple[AnswerChunk, ...] = (
    TextPiece(text="ok"),
    UsagePiece(usage=Usage()),
    StopPiece(reason="end"),
)


def _canned_stream(dialect: Dialect, model: str) -> bytes:
    """A stream with a finish reason: without one OpenCode calls again."""
    writer = codec_for(dialect).writer(model)
    return b"".join((*(writer.write(chunk) for chunk in CANNED_PIECES), writer.close()))


WARM_BACKEND = "goent-warm"
MODEL_PATHS = frozenset({("POST", "chat/completions"), ("POST", "messages")})
FREE_PATHS = frozenset({("POST", "messages/count_tokens"), ("GET", "models")})
MAX_FREE_ANSWER = 16 * 1024 * 1024  # bytes of a list of models, or of a count of tokens
FREE_ANSWER_S = 60.0  # for the whole answer

UNGUARDED_TEXT = "the guard of this process is not loaded, so its tools would run unchecked: no model call is made"

PlanCall = Callable[[str, str, str], CallPlan]


class _RequestedModel(Struct):
    model: str = ""
    stream: bool = False


class Relay:
    """The ASGI application. `plan` gives the targets of a worker's call to a backend and model."""

    def __init__(
        self, upstream: Upstream, plan: PlanCall, holders: Mapping[str, TokenHolder], port: int
    ) -> None:
        self.calls = OpenCalls()
        self._upstream = upstream
        self._plan = plan
        self._holders = holders
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = GatewayRequest.parse(scope)
        try:
            holder = self._admit(request)
            asgi.mark_authenticated(scope)
            with holder.track_request(), self._upstream.connections.memory.share() as share:
                await self._serve(request, holder, receive, send, share)
        except RequestRefused as refused:
            message = mask_retry_words(f"go-ent: {refused}")
            await asgi.send_refusal(send, request.dialect, refused.status, message)
        except ClientHungUp:
            pass

    async def _serve(
        self,
        request: GatewayRequest,
        holder: TokenHolder,
        receive: Receive,
        send: Send,
        share: MemoryShare,
    ) -> None:
        if request.backend == GUARD_BACKEND:
            await answer_guard(request, holder.guard, receive, send, share)
            return
        owners = self._owners(request, holder)
        body = await asgi.read_body(receive, share)
        wanted = _requested_model(body)
        if owners[0].warm:
            await _answer_canned(request, wanted, send)
            return
        if holder.guard and not holder.guard.is_loaded:
            raise RequestRefused(403, UNGUARDED_TEXT)
        owner, plan = self._plan_for(request, owners, wanted)
        with self.calls.track(owner.worker) as call:
            if (request.method, request.path) in MODEL_PATHS:
                inbound = InboundCall(
                    worker=owner.worker,
                    session=request.header(b"x-session-id"),
                    backend=request.backend,
                    dialect=request.dialect,
                    model=wanted.model,
                    stream=wanted.stream,
                    headers=request.headers,
                    body=body,
                )
                await answer_call(call, self._upstream, inbound, plan, receive, send)
            else:
                await self._pass_through(request, body, plan, send, share)

    def _admit(self, request: GatewayRequest) -> TokenHolder:
        if request.header(b"host") not in self._hosts:
            raise RequestRefused(403, f"host {request.header(b'host')!r} is not this gateway's")
        found = None
        for token, holder in self._holders.items():  # compares with every token: constant time
            if compare_digest(token.encode(), request.token.encode()):
                found = holder
        if found is None:
            raise RequestRefused(401, "this key is not, or no longer, a key of this gateway")
        return found

    def _owners(self, request: GatewayRequest, holder: TokenHolder) -> tuple[CallOwner, ...]:
        if (request.method, request.path) not in MODEL_PATHS | FREE_PATHS:
            raise RequestRefused(404, f"{request.method} {request.path!r} is not offered here")
        if request.backend == WARM_BACKEND:
            return (CallOwner("", warm=True),)
        owners = holder.owners(
            session=request.header(b"x-session-id"), parent=request.header(b"x-parent-session-id")
        )
        if not owners:
            raise RequestRefused(403, "no worker to charge the call to is bound to this key")
        return owners

    def _plan_for(
        self, request: GatewayRequest, owners: tuple[CallOwner, ...], wanted: _RequestedModel
    ) -> tuple[CallOwner, CallPlan]:
        """The first owner that may call the backend, and the plan of the call."""
        foreign: ForeignBackend | None = None
        for owner in owners:
            try:
                return owner, self._plan(owner.worker, request.backend, wanted.model)
            except ForeignBackend as error:
                foreign = foreign or error
            except ProviderRefused as error:
                status = 404 if isinstance(error, UnknownBackend) else 400
                raise RequestRefused(status, str(error)) from error
        raise RequestRefused(403, str(foreign)) from foreign

    async def _pass_through(
        self, request: GatewayRequest, body: bytes, plan: CallPlan, send: Send, share: MemoryShare
    ) -> None:
        """Pass on a request that costs nothing, without failover."""
        target = plan.targets[0]
        query = f"?{request.query}" if request.query else ""
        call = ModelCall(
            backend=target.provider.backend,
            dialect=target.dialect,
            method=request.method,
            url=f"{target.base_url}/{request.path}{query}",
            headers=request.headers,
            body=body,
            key=target.key,
            secret_headers=target.headers,
            server=target.server,
        )
        try:
            with anyio.fail_after(FREE_ANSWER_S):
                async with self._upstream.connections.send(call) as reply:
                    body = await read_whole(reply, target.place, share, most=MAX_FREE_ANSWER)
                    status = reply.status
        except TimeoutError:
            message = f"{target.place} did not finish its answer within {FREE_ANSWER_S:g} s"
            raise RequestRefused(502, message) from None
        except AnswerTooLarge as error:
            raise RequestRefused(502, str(error)) from error
        except AtLimit as error:
            raise RequestRefused(429, str(error)) from error
        except WorkerError as error:
            await asgi.send_refusal(send, request.dialect, *gateway_refusal(error))
        else:
            await asgi.send_reply(send, status, asgi.JSON_HEADERS, call.without_key(body))


def _requested_model(body: bytes) -> _RequestedModel:
    try:
        return msgspec.json.decode(body, type=_RequestedModel)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _RequestedModel()  # the provider will complain about it


async def _answer_canned(request: GatewayRequest, wanted: _RequestedModel, send: Send) -> None:
    if request.path == "models":
        body, headers = b'{"object":"list","data":[]}', asgi.JSON_HEADERS
    elif request.path == "messages/count_tokens":
        body, headers = b'{"input_tokens":0}', asgi.JSON_HEADERS
    elif wanted.stream:
        body, headers = _canned_stream(request.dialect, wanted.model), asgi.SSE_HEADERS
    else:
        body = codec_for(request.dialect).write_answer(wanted.model, CANNED_PIECES)
        headers = asgi.JSON_HEADERS
    await asgi.send_reply(send, 200, headers, body)


class Gateway:
    """The ports `Gate` and `Meter`: tokens and sessions of worker processes, and their server."""

    def __init__(self, relay: Relay, holders: dict[str, TokenHolder], port: int) -> None:
        self.port = port
        self._relay = relay
        self._holders = holders

    @classmethod
    @asynccontextmanager
    async def open(cls, upstream: Upstream, plan: PlanCall) -> "AsyncGenerator[Gateway]":
        """Listens from entry on. On leaving, calls in progress are cut off and reported."""
        holders: dict[str, TokenHolder] = {}
        with _open_listener() as listener:
            port = int(listener.getsockname()[1])
            async with anyio.create_task_group() as tasks:
                relay = Relay(upstream, plan, holders, port)
                server = LoopbackServer(relay)
                tasks.start_soon(server.serve_on, listener)
                try:
                    yield cls(relay, holders, port)
                finally:
                    relay.calls.cancel_all()
                    server.stop()

    def base_url(self, backend: str) -> str:
        """The address that stands in for the backend's own `base_url`."""
        return f"http://127.0.0.1:{self.port}/{quote(backend, safe='')}"

    def issue_token(self) -> str:
        """A key for one worker process, valid at this gateway only."""
        token = f"goent_{secrets.token_urlsafe(32)}"
        self._holders[token] = TokenHolder()
        return token

    def revoke_token(self, token: str) -> None:
        self._holders.pop(token, None)

    @property
    def guard_url(self) -> str:
        """The address where the guard inside a worker's program asks about tool calls."""
        return self.base_url(GUARD_BACKEND)

    def set_guard(self, token: str, guard: ToolGuard) -> None:
        """Let `guard` decide on the tool calls of the token's process; no effect if revoked."""
        if holder := self._holders.get(token):
            holder.guard = guard

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Charge the session's calls to the worker; with None the gateway answers them itself.

        Where the session's name is not known ahead (`opencode run`), any name will do: unknown
        sessions belong to the worker that was bound last. No effect if the token was revoked.
        """
        if holder := self._holders.get(token):
            owner = CallOwner("", warm=True) if worker is None else CallOwner(worker)
            holder.bind_session(session, owner)

    def unbind(self, session: str) -> None:
        for holder in self._holders.values():
            holder.sessions.pop(session, None)

    def waiting_s(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        return self._relay.calls.waiting_s(worker)

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted, or after a bounded wait."""
        await self._relay.calls.settle(worker)


def _open_listener() -> socket.socket:
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it on, every
    # answer waits 40 ms between its head and its body.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    return listener
