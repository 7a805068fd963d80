"""How does one model call get to its provider and back, with nothing changed but the key?

No retries and no redirects: whoever asked decides what a failure means.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.request import getproxies

import anyio
import httpx2

from goent.domain.errors import (
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    ServerNotRunning,
    WorkerError,
)
from goent.domain.local_servers import not_running
from goent.domain.settings import is_private
from goent.domain.types import Dialect, Secret, Value
from goent.upstream.memory import Memory, Share

Headers = tuple[tuple[bytes, bytes], ...]
Given = tuple[tuple[str, Secret], ...]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
OURS_TO_SET = frozenset(
    b"host content-length expect accept-encoding authorization x-api-key cookie".split()
)
FRAMING = frozenset(b"host content-length expect accept-encoding".split())
NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
KEPT, KEEP_S = 20, 5.0  # connections that nobody uses, and for how long
WRITES = 2  # a slow network may take longer for a long request than one `write_s`
NOT_CONNECTED = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class TooLarge(ProviderDown):
    """An answer is longer than go-ent reads; the message names the limit."""


class Timeouts(Value, frozen=True, kw_only=True):
    """Seconds. `read_s` is the longest silence: a model that thinks sends nothing for minutes.

    It is `hurried_s` where somebody else can be asked instead; a call may have one of its own.
    """

    connect_s: float = 10.0
    read_s: float = 300.0
    hurried_s: float = 120.0
    write_s: float = 60.0


class ModelCall(Value, frozen=True, kw_only=True):
    """One call as the worker made it, and where it is to go.

    `given` are headers of the user's settings, which go before all others. `server` is the address of
    a model server of the user's own, which may want no key.
    """

    backend: str
    dialect: Dialect
    method: str
    url: str
    headers: Headers
    body: bytes
    key: Secret
    hurry: bool = False
    given: Given = ()
    server: str = ""
    silence_s: float | None = None

    def without_key(self, said: bytes) -> bytes:
        """Providers have been seen to quote the key that they refuse."""
        private = (self.key, *(secret for name, secret in self.given if is_private(name)))
        for secret in private:
            if key := secret.reveal().strip().encode():
                said = said.replace(key, b"[redacted]")
        return said


class Answer:
    """What the provider said: the pieces are its bytes, as they come."""

    def __init__(self, status: int, headers: Headers, pieces: AsyncIterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.pieces = pieces

    @property
    def is_stream(self) -> bool:
        kinds = (value for name, value in self.headers if name.lower() == b"content-type")
        return next(kinds, b"").lower().startswith(b"text/event-stream")


class Connections:
    """The way out to all providers: one pool of connections."""

    def __init__(self, client: httpx2.AsyncClient, timeouts: Timeouts) -> None:
        self.memory = Memory()
        self._client = client
        self._timeouts = timeouts

    @classmethod
    @asynccontextmanager
    async def open(cls, timeouts: Timeouts = Timeouts()) -> "AsyncGenerator[Connections]":  # noqa: B008 (frozen)
        """Connections are kept for the next call, and closed on leaving."""
        from goent.upstream.direct import Direct  # noqa: PLC0415 (asyncio and h11 take 30 ms to load)

        direct = Direct(kept=KEPT, keep_s=KEEP_S)
        async with httpx2.AsyncClient(
            # The ways through a proxy of the environment are httpx's own.
            transport=None if getproxies() else direct,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT),
            # A proxy leads outward; models on this machine are not there.
            mounts={f"all://{host}": direct for host in ("127.0.0.1", "localhost", "[::1]")},
            # One client serves many keys: what a provider hands to one is not shown to the next.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        ) as client:
            yield cls(client, timeouts)

    @asynccontextmanager
    async def send(self, call: ModelCall) -> AsyncGenerator[Answer]:
        """The provider's answer, whatever its status. Leaving the context hangs up.

        Raises `ProviderDown`, `ProviderTimeout` or `ProviderRefused`, also for what happens to
        the pieces inside the context.
        """
        headers = _headers(call)
        try:
            async with self._begun(call, headers) as response:
                passed = _kept(response.headers.raw, frozenset({b"set-cookie"}))
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                yield Answer(response.status_code, tuple(passed), aiter(response.stream))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise _translated(call, error) from error

    @asynccontextmanager
    async def _begun(
        self, call: ModelCall, headers: list[tuple[bytes, bytes]]
    ) -> AsyncGenerator[httpx2.Response]:
        """The answer, once its head is there: all of the waits before it have one end.

        A proxy may pass on informational replies for ever, each of which httpx takes for progress.
        """
        patience = self._patience(call)
        request = self._client.build_request(
            call.method, call.url, headers=headers, content=call.body or None, timeout=patience
        )
        told = self._timeouts
        longest = told.connect_s + WRITES * told.write_s + (patience.read or told.read_s)
        try:
            with anyio.fail_after(longest):
                response = await self._client.send(request, stream=True)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"no answer within {longest:g} s") from error
        try:
            yield response
        finally:
            await response.aclose()

    def _patience(self, call: ModelCall) -> httpx2.Timeout:
        told = self._timeouts
        usual = min(told.read_s, told.hurried_s) if call.hurry else told.read_s
        return httpx2.Timeout(
            connect=told.connect_s,
            read=usual if call.silence_s is None else call.silence_s,
            write=told.write_s,
            pool=told.connect_s,
        )


async def read_whole(answer: Answer, place: str, share: Share, *, most: int) -> bytes:
    """All of an answer's body, as it came: nothing is unpacked. Raises `TooLarge` and `AtLimit`."""
    body = bytearray()
    async for piece in answer.pieces:
        if len(body) + len(piece) > most:
            raise TooLarge(f"{place} sent an answer of more than {most} bytes, the limit")
        share.add(len(piece))
        body += piece
    return bytes(body)


def never_left(error: WorkerError) -> bool:
    """Did the call fail before the provider can have seen it? Then it bills nothing."""
    cause = error.__cause__
    return isinstance(error, ProviderRefused) or isinstance(cause, NOT_CONNECTED)


def _kept(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    pairs = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in pairs if name == b"connection").lower()
    gone = dropped | HOP_BY_HOP | {name.strip() for name in named.split(b",")}
    return [(name, value) for name, value in pairs if name not in gone]


def _headers(call: ModelCall) -> list[tuple[bytes, bytes]]:
    given = [_given(call, name, secret) for name, secret in call.given]
    names = frozenset(name for name, _ in given)
    ours = [(b"accept-encoding", b"identity"), *_key(call)]
    others = (*_kept(call.headers, OURS_TO_SET), *ours)
    return [*(pair for pair in others if pair[0] not in names), *given]


def _given(call: ModelCall, name: str, secret: Secret) -> tuple[bytes, bytes]:
    value = secret.reveal().strip()
    sendable = NAME.fullmatch(name) and value.isascii() and value.isprintable()
    if not sendable or name.lower().encode() in HOP_BY_HOP | FRAMING:
        raise ProviderRefused(
            f"the header {name!r} of backend {call.backend!r} in opencode.json cannot be sent: "
            "correct its name and value"
        )
    return name.lower().encode(), value.encode()


def _key(call: ModelCall) -> list[tuple[bytes, bytes]]:
    key = call.key.reveal().strip()
    if not key:
        return []
    # Checked here because the HTTP library would quote the key in its error.
    if not (key.isascii() and key.isprintable()):
        raise ProviderRefused(
            f"the key of backend {call.backend!r} holds characters that no header can carry: "
            "set it again, without line breaks"
        )
    if call.dialect == "anthropic":
        return [(b"x-api-key", key.encode())]
    return [(b"authorization", b"Bearer " + key.encode())]


def _translated(call: ModelCall, error: Exception) -> WorkerError:
    if call.server and isinstance(error, httpx2.ConnectError):
        return ServerNotRunning(not_running(call.backend, call.server))
    place = f"backend {call.backend!r} at {call.url!r}"
    if isinstance(error, httpx2.ConnectTimeout):
        return ProviderTimeout(f"{place} could not be reached in time: check the network")
    if isinstance(error, httpx2.TimeoutException):
        return ProviderTimeout(f"{place} fell silent ({type(error).__name__})")
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ProviderRefused(f"{place} has no usable address: correct its base_url")
    return ProviderDown(f"{place} failed: {str(error) or type(error).__name__}")
