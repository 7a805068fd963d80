"""What happens to a request: who asks, may it pass, and where does it go?"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from goent.domain.settings import Backend
from goent.domain.types import Secret, Value
from goent.gateway import http
from goent.gateway.calls import Asked, Call, OnBegin, OnCall, OpenCalls
from goent.gateway.exchange import Exchange
from goent.gateway.http import HungUp, Receive, Refused, Request, Scope, Send
from goent.gateway.passes import Owner, Passes
from goent.llm.canned import canned_answer, canned_stream
from goent.upstream.forward import ModelCall, Upstream

WARM_BACKEND = "goent-warm"
MODEL_PATHS = frozenset({("POST", "chat/completions"), ("POST", "messages")})
FREE_PATHS = frozenset({("POST", "messages/count_tokens"), ("GET", "models")})


class Wiring(Value, frozen=True, kw_only=True):
    """What the gateway asks of those who started it, anew for every call."""

    backends: Callable[[], Mapping[str, Backend]]
    environ: Callable[[], Mapping[str, str]]
    on_begin: OnBegin
    on_call: OnCall


class _Wanted(Struct):
    model: str = ""
    stream: bool = False


class Relay:
    """The ASGI application."""

    def __init__(self, wiring: Wiring, passes: Passes, upstream: Upstream, port: int) -> None:
        self.calls = OpenCalls()
        self._wiring = wiring
        self._passes = passes
        self._upstream = upstream
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request.parse(scope)
        try:
            owner = self._admit(request)
            body = await http.read_body(receive)
            if owner.warm:
                await _answer_ourselves(request, _wanted(body), send)
                return
            order = self._address(request, body)
            asked = _asked(request, owner, _wanted(body))
            call = Call(asked, self._wiring.on_begin, self._wiring.on_call)
            with self.calls.hold(call):
                await Exchange(call, self._upstream, send).run(order, receive)
        except Refused as refusal:
            await http.refuse(send, request.dialect, refusal.status, f"go-ent: {refusal}")
        except HungUp:
            pass

    def _admit(self, request: Request) -> Owner:
        if request.header(b"host") not in self._hosts:
            raise Refused(403, f"host {request.header(b'host')!r} is not this gateway's")
        found = self._passes.find(request.token)
        if found is None:
            raise Refused(401, "this key is not, or no longer, one that the gateway gave out")
        if (request.method, request.rest) not in MODEL_PATHS | FREE_PATHS:
            raise Refused(404, f"{request.method} {request.rest!r} is not offered here")
        if request.backend == WARM_BACKEND:
            return Owner("", warm=True)
        owner = found.owner(
            session=request.header(b"x-session-id"), parent=request.header(b"x-parent-session-id")
        )
        if owner is None:
            raise Refused(403, "no worker is bound to this key, so nobody would pay for the call")
        return owner

    def _address(self, request: Request, body: bytes) -> ModelCall:
        backend = self._wiring.backends().get(request.backend)
        if backend is None:
            raise Refused(404, f"there is no backend {request.backend!r}")
        if not backend.base_url:
            raise Refused(400, f"backend {backend.id!r} has no base_url: set it in providers.yaml")
        key = backend.resolve_key(self._wiring.environ())
        if not key:
            remedy = f"set {backend.key_env}" if backend.key_env else "set its key_env"
            raise Refused(400, f"no key for backend {backend.id!r}: {remedy}")
        query = f"?{request.query}" if request.query else ""
        return ModelCall(
            backend=backend.id,
            dialect=backend.dialect,
            method=request.method,
            url=f"{backend.base_url.rstrip('/')}/{request.rest}{query}",
            headers=request.headers,
            body=body,
            key=Secret(key),
        )


def _wanted(body: bytes) -> _Wanted:
    try:
        return msgspec.json.decode(body, type=_Wanted)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Wanted()  # whatever it is, the provider is the one to complain


def _asked(request: Request, owner: Owner, wanted: _Wanted) -> Asked:
    return Asked(
        worker=owner.worker,
        session=request.header(b"x-session-id"),
        backend=request.backend,
        model=wanted.model,
        dialect=request.dialect,
        stream=wanted.stream,
        metered=(request.method, request.rest) in MODEL_PATHS,
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
