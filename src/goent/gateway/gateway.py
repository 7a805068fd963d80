"""The loopback server for model calls: admits a request, finds its worker, passes it on."""

import secrets
import socket
from collections.abc import AsyncGenerator, Callable, Generator
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

MOST_AT_A_TIME = 256  # requests of one token


class TooManyRequests(Exception):
    """The process has more requests under way than it may."""


class CallOwner(NamedTuple):
    """Who pays for a call; `warm` calls are nobody's and are answered by the gateway itself."""

    worker: str
    warm: bool = False


class TokenHolder:
    """What is known about the process that holds one token."""

    def __init__(self) -> None:
        self.sessions: dict[str, CallOwner] = {}
        self.guard: ToolGuard | None = None
        self._last: CallOwner | None = None
        self._under_way = 0

    @contextmanager
    def track_request(self) -> Generator[None]:
        """One request of the process. Raises `TooManyRequests`."""
        if self._under_way >= MOST_AT_A_TIME:
            raise TooManyRequests(
                f"{MOST_AT_A_TIME} requests with this key are under way: try again"
            )
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def bind_session(self, session: str, owner: CallOwner) -> None:
        self.sessions.pop(session, None)  # the last to be bound is the last in order
        self.sessions[session] = owner
        if not owner.warm:
            self._last = owner

    def owners(self, *, session: str, parent: str) -> tuple[CallOwner, ...]:
        """Who may have made a call, the likeliest first; nobody if no worker was ever bound.

        The parent's owner pays for a child session. A session that nobody announced belongs to one
        of the workers of the process, most likely to the one that was bound last.
        """
        if announced := self.sessions.get(parent) or self.sessions.get(session):
            return (announced,)
        bound = [owner for owner in reversed(self.sessions.values()) if not owner.warm]
        return tuple(dict.fromkeys(bound)) or ((self._last,) if self._last else ())


class TokenRegistry:
    """The tokens that are good now."""

    def __init__(self) -> None:
        self._passes: dict[str, TokenHolder] = {}

    def issue(self) -> str:
        token = f"goent_{secrets.token_urlsafe(32)}"
        self._passes[token] = TokenHolder()
        return token

    def revoke(self, token: str) -> None:
        self._passes.pop(token, None)

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Without effect if the token was revoked: its calls are turned away anyhow."""
        if found := self._passes.get(token):
            found.bind_session(
                session, CallOwner("", warm=True) if worker is None else CallOwner(worker)
            )

    def set_guard(self, token: str, guard: ToolGuard) -> None:
        """Without effect if the token was revoked."""
        if found := self._passes.get(token):
            found.guard = guard

    def unbind(self, session: str) -> None:
        for each in self._passes.values():
            each.sessions.pop(session, None)

    def find(self, presented: str) -> TokenHolder | None:
        """The pass of a token, compared in constant time with every one that is good."""
        found = None
        for token, each in self._passes.items():
            if compare_digest(token.encode(), presented.encode()):
                found = each
        return found


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
    """Answer one question of a guard. Without anybody who decides, nothing is allowed."""
    body = await asgi.read_body(receive, share)
    if guard is None:
        raise RequestRefused(403, "nobody decides on the tool calls of this process")
    try:
        match request.method, request.path:
            case "POST", "hello":
                guard.mark_loaded(msgspec.json.decode(body, type=_GuardHello).directory)
                answer = GuardVerdict(allow=True)
            case "POST", "shell":
                variables = guard.shell_environment(
                    msgspec.json.decode(body, type=_ShellQuestion).owner
                )
                await asgi.send_reply(send, 200, asgi.JSON_HEADERS, msgspec.json.encode(variables))
                return
            case "POST", "hint":
                failed = msgspec.json.decode(body, type=_FailedCommand)
                hint = guard.hint(failed.owner, failed.output)
                await asgi.send_reply(
                    send, 200, asgi.JSON_HEADERS, msgspec.json.encode(_HintReply(hint=hint))
                )
                return
            case "POST", "call":
                call = msgspec.json.decode(body, type=GuardedCall)
                answer = await _await_verdict(guard, call, receive)
            case _:
                raise RequestRefused(404, f"{request.method} {request.path!r} is not offered here")
    except msgspec.DecodeError as error:
        raise RequestRefused(400, f"the guard's message cannot be read: {error}") from error
    await asgi.send_reply(send, 200, asgi.JSON_HEADERS, msgspec.json.encode(answer))


async def _await_verdict(guard: ToolGuard, call: GuardedCall, receive: Receive) -> GuardVerdict:
    """The verdict, unless the process that asked is gone before."""
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


def canned_answer(dialect: Dialect, model: str) -> bytes:
    """The whole answer as plain JSON."""
    return codec_for(dialect).write_answer(model, CANNED_PIECES)


def canned_stream(dialect: Dialect, model: str) -> bytes:
    """The whole answer as a stream, with its finish reason: without one OpenCode asks again."""
    writer = codec_for(dialect).writer(model)
    return b"".join((*(writer.write(chunk) for chunk in CANNED_PIECES), writer.close()))


WARM_BACKEND = "goent-warm"
MODEL_PATHS = frozenset({("POST", "chat/completions"), ("POST", "messages")})
FREE_PATHS = frozenset({("POST", "messages/count_tokens"), ("GET", "models")})
MAX_FREE_ANSWER = 16 * 1024 * 1024  # bytes of a list of models, or of a count of tokens
FREE_ANSWER_S = 60.0  # for all of it

UNGUARDED_TEXT = (
    "the guard of this process is not loaded, so its tools would run unasked: it gets no model"
)

PlanCall = Callable[[str, str, str], CallPlan]


class _RequestedModel(Struct):
    model: str = ""
    stream: bool = False


class Relay:
    """The ASGI application. `plan` says where a worker's call to a backend and model may go."""

    def __init__(
        self, upstream: Upstream, plan: PlanCall, passes: TokenRegistry, port: int
    ) -> None:
        self.calls = OpenCalls()
        self._upstream = upstream
        self._plan = plan
        self._passes = passes
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = GatewayRequest.parse(scope)
        try:
            found = self._admit(request)
            asgi.mark_authenticated(scope)
            with found.track_request(), self._upstream.connections.memory.share() as share:
                await self._serve(request, found, receive, send, share)
        except TooManyRequests as no:
            await asgi.send_refusal(send, request.dialect, 429, mask_retry_words(f"go-ent: {no}"))
        except RequestRefused as no:
            await asgi.send_refusal(
                send, request.dialect, no.status, mask_retry_words(f"go-ent: {no}")
            )
        except ClientHungUp:
            pass

    async def _serve(
        self,
        request: GatewayRequest,
        found: TokenHolder,
        receive: Receive,
        send: Send,
        share: MemoryShare,
    ) -> None:
        if request.backend == GUARD_BACKEND:
            await answer_guard(request, found.guard, receive, send, share)
            return
        owners = self._owners(request, found)
        body = await asgi.read_body(receive, share)
        if owners[0].warm:
            await _answer_canned(request, _requested_model(body), send)
            return
        _check_guarded(found)
        wanted = _requested_model(body)
        owner, course = self._plan_for(request, owners, wanted)
        with self.calls.track(owner.worker) as call:
            if (request.method, request.path) in MODEL_PATHS:
                order = _inbound_call(request, owner, wanted, body)
                await answer_call(call, self._upstream, order, course, receive, send)
            else:
                await self._pass_through(request, body, course, send, share)

    def _admit(self, request: GatewayRequest) -> TokenHolder:
        if request.header(b"host") not in self._hosts:
            raise RequestRefused(403, f"host {request.header(b'host')!r} is not this gateway's")
        found = self._passes.find(request.token)
        if found is None:
            raise RequestRefused(
                401, "this key is not, or no longer, one that the gateway gave out"
            )
        return found

    def _owners(self, request: GatewayRequest, found: TokenHolder) -> tuple[CallOwner, ...]:
        if (request.method, request.path) not in MODEL_PATHS | FREE_PATHS:
            raise RequestRefused(404, f"{request.method} {request.path!r} is not offered here")
        if request.backend == WARM_BACKEND:
            return (CallOwner("", warm=True),)
        owners = found.owners(
            session=request.header(b"x-session-id"), parent=request.header(b"x-parent-session-id")
        )
        if not owners:
            raise RequestRefused(
                403, "no worker is bound to this key, so nobody would pay for the call"
            )
        return owners

    def _plan_for(
        self, request: GatewayRequest, owners: tuple[CallOwner, ...], wanted: _RequestedModel
    ) -> tuple[CallOwner, CallPlan]:
        """The first owner that may call the backend, and where the call may go."""
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
        self, request: GatewayRequest, body: bytes, course: CallPlan, send: Send, share: MemoryShare
    ) -> None:
        """What costs nothing is asked of the provider it names, and of no other."""
        target = course.targets[0]
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
            words = f"{target.place} did not end its answer within {FREE_ANSWER_S:g} s"
            raise RequestRefused(502, words) from None
        except AnswerTooLarge as error:
            raise RequestRefused(502, str(error)) from error
        except AtLimit as error:
            raise RequestRefused(429, str(error)) from error
        except WorkerError as error:
            told = gateway_refusal(error)
            await asgi.send_refusal(send, request.dialect, *told)
        else:
            await asgi.send_reply(send, status, asgi.JSON_HEADERS, call.without_key(body))


def _check_guarded(found: TokenHolder) -> None:
    if found.guard and not found.guard.is_loaded:
        raise RequestRefused(403, UNGUARDED_TEXT)


def _requested_model(body: bytes) -> _RequestedModel:
    try:
        return msgspec.json.decode(body, type=_RequestedModel)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _RequestedModel()  # whatever it is, the provider is the one to complain


def _inbound_call(
    request: GatewayRequest, owner: CallOwner, wanted: _RequestedModel, body: bytes
) -> InboundCall:
    return InboundCall(
        worker=owner.worker,
        session=request.header(b"x-session-id"),
        backend=request.backend,
        dialect=request.dialect,
        model=wanted.model,
        stream=wanted.stream,
        headers=request.headers,
        body=body,
    )


async def _answer_canned(request: GatewayRequest, wanted: _RequestedModel, send: Send) -> None:
    if request.path == "models":
        body, headers = b'{"object":"list","data":[]}', asgi.JSON_HEADERS
    elif request.path == "messages/count_tokens":
        body, headers = b'{"input_tokens":0}', asgi.JSON_HEADERS
    elif wanted.stream:
        body, headers = canned_stream(request.dialect, wanted.model), asgi.SSE_HEADERS
    else:
        body, headers = canned_answer(request.dialect, wanted.model), asgi.JSON_HEADERS
    await asgi.send_reply(send, 200, headers, body)


class Gateway:
    """The ports `Gate` and `Meter`, over a server on 127.0.0.1."""

    def __init__(self, relay: Relay, passes: TokenRegistry, port: int) -> None:
        self.port = port
        self._relay = relay
        self._passes = passes

    @classmethod
    @asynccontextmanager
    async def open(cls, upstream: Upstream, plan: PlanCall) -> "AsyncGenerator[Gateway]":
        """Listening on entry. On leaving, calls under way are cut off and reported."""
        passes = TokenRegistry()
        with _open_listener() as listener:
            port = int(listener.getsockname()[1])
            async with anyio.create_task_group() as tasks:
                relay = Relay(upstream, plan, passes, port)
                server = LoopbackServer(relay)
                tasks.start_soon(server.serve_on, listener)
                try:
                    yield cls(relay, passes, port)
                finally:
                    relay.calls.cancel_all()
                    server.stop()

    def base_url(self, backend: str) -> str:
        """The address that stands in for the backend's own `base_url`."""
        return f"http://127.0.0.1:{self.port}/{quote(backend, safe='')}"

    def issue_token(self) -> str:
        """A key for one worker process, good for this gateway alone."""
        return self._passes.issue()

    def revoke_token(self, token: str) -> None:
        self._passes.revoke(token)

    @property
    def guard_url(self) -> str:
        """Where the guard inside a worker's program asks about tool calls."""
        return self.base_url(GUARD_BACKEND)

    def set_guard(self, token: str, guard: ToolGuard) -> None:
        """Tool calls of the process that has the token are decided by `guard`."""
        self._passes.set_guard(token, guard)

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Calls of the session are the worker's; with None the gateway answers them itself.

        Where the session's name is not known ahead (`opencode run`), any name will do: sessions
        that nobody announced belong to the worker that was bound last.
        """
        self._passes.bind(token=token, session=session, worker=worker)

    def unbind(self, session: str) -> None:
        self._passes.unbind(session)

    def waiting_s(self, worker: str) -> float | None:
        """For how long the worker has been waiting for a model; None if it is not."""
        return self._relay.calls.waiting_s(worker)

    async def settle(self, worker: str) -> None:
        """Return when the worker's calls have been counted; bounded."""
        await self._relay.calls.settle(worker)


def _open_listener() -> socket.socket:
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it on, every
    # answer waits 40 ms between its head and its body.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(BACKLOG)
    return listener
