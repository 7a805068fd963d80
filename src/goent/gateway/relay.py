"""What happens to a request: who asks, may it pass, and where does it go?"""

from collections.abc import Callable

import anyio
import msgspec
from msgspec import Struct

from goent.domain.errors import AtLimit, ProviderRefused, WorkerError
from goent.gateway import http
from goent.gateway.calls import OpenCalls
from goent.gateway.exchange import answer
from goent.gateway.guard_desk import GUARD_BACKEND, attend
from goent.gateway.http import HungUp, Receive, Refused, Request, Scope, Send
from goent.gateway.passes import Owner, Pass, Passes, TooMany
from goent.gateway.refusals import refusal
from goent.llm.calm import calm
from goent.llm.canned import canned_answer, canned_stream
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, ForeignBackend, Order, UnknownBackend
from goent.upstream.forward import ModelCall, TooLarge, read_whole
from goent.upstream.memory import Share

WARM_BACKEND = "goent-warm"
MODEL_PATHS = frozenset({("POST", "chat/completions"), ("POST", "messages")})
FREE_PATHS = frozenset({("POST", "messages/count_tokens"), ("GET", "models")})
MOST_FREE_ANSWER = 16 * 1024 * 1024  # bytes of a list of models, or of a count of tokens
FREE_ANSWER_S = 60.0  # for all of it

UNGUARDED = (
    "the guard of this process is not loaded, so its tools would run unasked: it gets no model"
)

PlanCourse = Callable[[str, str, str], Course]


class _Wanted(Struct):
    model: str = ""
    stream: bool = False


class Relay:
    """The ASGI application. `plan` says where a worker's call to a backend and model may go."""

    def __init__(self, upstream: Upstream, plan: PlanCourse, passes: Passes, port: int) -> None:
        self.calls = OpenCalls()
        self._upstream = upstream
        self._plan = plan
        self._passes = passes
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.parse(scope)
        try:
            found = self._admit(request)
            http.authenticated(scope)
            with found.request(), self._upstream.connections.memory.share() as share:
                await self._serve(request, found, receive, send, share)
        except TooMany as no:
            await http.refuse(send, request.dialect, 429, calm(f"go-ent: {no}"))
        except Refused as no:
            await http.refuse(send, request.dialect, no.status, calm(f"go-ent: {no}"))
        except HungUp:
            pass

    async def _serve(
        self, request: Request, found: Pass, receive: Receive, send: Send, share: Share
    ) -> None:
        if request.backend == GUARD_BACKEND:
            await attend(request, found.guard, receive, send, share)
            return
        owners = self._owners(request, found)
        body = await http.read_body(receive, share)
        if owners[0].warm:
            await _answer_ourselves(request, _wanted(body), send)
            return
        _check_guarded(found)
        wanted = _wanted(body)
        owner, course = self._course(request, owners, wanted)
        with self.calls.hold(owner.worker) as call:
            if (request.method, request.rest) in MODEL_PATHS:
                order = _order(request, owner, wanted, body)
                await answer(call, self._upstream, order, course, receive, send)
            else:
                await self._pass_through(request, body, course, send, share)

    def _admit(self, request: Request) -> Pass:
        if request.header(b"host") not in self._hosts:
            raise Refused(403, f"host {request.header(b'host')!r} is not this gateway's")
        found = self._passes.find(request.token)
        if found is None:
            raise Refused(401, "this key is not, or no longer, one that the gateway gave out")
        return found

    def _owners(self, request: Request, found: Pass) -> tuple[Owner, ...]:
        if (request.method, request.rest) not in MODEL_PATHS | FREE_PATHS:
            raise Refused(404, f"{request.method} {request.rest!r} is not offered here")
        if request.backend == WARM_BACKEND:
            return (Owner("", warm=True),)
        owners = found.owners(
            session=request.header(b"x-session-id"), parent=request.header(b"x-parent-session-id")
        )
        if not owners:
            raise Refused(403, "no worker is bound to this key, so nobody would pay for the call")
        return owners

    def _course(
        self, request: Request, owners: tuple[Owner, ...], wanted: _Wanted
    ) -> tuple[Owner, Course]:
        """The first owner that may call the backend, and where the call may go."""
        foreign: ForeignBackend | None = None
        for owner in owners:
            try:
                return owner, self._plan(owner.worker, request.backend, wanted.model)
            except ForeignBackend as error:
                foreign = foreign or error
            except ProviderRefused as error:
                status = 404 if isinstance(error, UnknownBackend) else 400
                raise Refused(status, str(error)) from error
        raise Refused(403, str(foreign)) from foreign

    async def _pass_through(
        self, request: Request, body: bytes, course: Course, send: Send, share: Share
    ) -> None:
        """What costs nothing is asked of the provider it names, and of no other."""
        target = course.targets[0]
        query = f"?{request.query}" if request.query else ""
        call = ModelCall(
            backend=target.provider.backend,
            dialect=target.dialect,
            method=request.method,
            url=f"{target.base_url}/{request.rest}{query}",
            headers=request.headers,
            body=body,
            key=target.key,
            given=target.headers,
            server=target.server,
        )
        try:
            with anyio.fail_after(FREE_ANSWER_S):
                async with self._upstream.connections.send(call) as reply:
                    body = await read_whole(reply, target.place, share, most=MOST_FREE_ANSWER)
                    status = reply.status
        except TimeoutError:
            words = f"{target.place} did not end its answer within {FREE_ANSWER_S:g} s"
            raise Refused(502, words) from None
        except TooLarge as error:
            raise Refused(502, str(error)) from error
        except AtLimit as error:
            raise Refused(429, str(error)) from error
        except WorkerError as error:
            told = refusal(error)
            await http.refuse(send, request.dialect, *told)
        else:
            await http.reply(send, status, http.JSON, call.without_key(body))


def _check_guarded(found: Pass) -> None:
    if found.guard and not found.guard.in_force:
        raise Refused(403, UNGUARDED)


def _wanted(body: bytes) -> _Wanted:
    try:
        return msgspec.json.decode(body, type=_Wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Wanted()  # whatever it is, the provider is the one to complain


def _order(request: Request, owner: Owner, wanted: _Wanted, body: bytes) -> Order:
    return Order(
        worker=owner.worker,
        session=request.header(b"x-session-id"),
        backend=request.backend,
        dialect=request.dialect,
        model=wanted.model,
        stream=wanted.stream,
        headers=request.headers,
        body=body,
    )


async def _answer_ourselves(request: Request, wanted: _Wanted, send: Send) -> None:
    if request.rest == "models":
        body, headers = b'{"object":"list","data":[]}', http.JSON
    elif request.rest == "messages/count_tokens":
        body, headers = b'{"input_tokens":0}', http.JSON
    elif wanted.stream:
        body, headers = canned_stream(request.dialect, wanted.model), http.SSE
    else:
        body, headers = canned_answer(request.dialect, wanted.model), http.JSON
    await http.reply(send, 200, headers, body)
