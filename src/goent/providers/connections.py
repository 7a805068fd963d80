"""Sends one model call to its provider and streams back the answer, within memory limits.

No retries and no redirects: the caller decides what a failure means.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from urllib.request import getproxies

import anyio
import httpx2

from goent.domain.errors import (
    AtLimit,
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    ServerNotRunning,
    WorkerError,
)
from goent.domain.local_servers import not_running_message
from goent.domain.settings import is_secret_header
from goent.domain.types import Dialect, Secret, Value

MAX_TOTAL_BYTES = 512 * 1024 * 1024


class BodyMemory:
    """The bytes of requests and answers that go-ent holds, over all calls."""

    def __init__(self, most: int = MAX_TOTAL_BYTES) -> None:
        self.limit = most
        self.used = 0

    @contextmanager
    def share(self) -> "Generator[MemoryShare]":
        """One call's share, given back on leaving."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            self.used -= share.size


class MemoryShare:
    """The bytes that one call holds."""

    def __init__(self, memory: BodyMemory) -> None:
        self.size = 0
        self._memory = memory

    def add(self, size: int) -> None:
        """Raises `AtLimit` if that is too much over all calls."""
        if self._memory.used + size > self._memory.limit:
            raise AtLimit(
                f"requests and answers already take {self._memory.used} bytes of go-ent's memory, "
                f"of at most {self._memory.limit}: try again when other calls are done"
            )
        self._memory.used += size
        self.size += size


Headers = tuple[tuple[bytes, bytes], ...]
SecretHeaders = tuple[tuple[str, Secret], ...]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)
OWN_HEADERS = frozenset(
    b"host content-length expect accept-encoding authorization x-api-key cookie".split()
)
FRAMING_HEADERS = frozenset(b"host content-length expect accept-encoding".split())
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
MAX_IDLE, IDLE_S = 20, 5.0  # idle connections that are kept, and for how long
WRITE_PERIODS = 2  # on a slow network a long request may take longer than one `write_s`
CONNECT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class AnswerTooLarge(ProviderDown):
    """An answer is longer than go-ent reads; the message names the limit."""


class CallTimeouts(Value, frozen=True, kw_only=True):
    """Seconds. `read_s` is the longest silence: a model that thinks sends nothing for minutes.

    `hurried_s` replaces it where another target is left; a call may have its own.
    """

    connect_s: float = 10.0
    read_s: float = 300.0
    hurried_s: float = 120.0
    write_s: float = 60.0


class ModelCall(Value, frozen=True, kw_only=True):
    """One HTTP request to a provider, without its authentication.

    `secret_headers` come from the user's settings and replace others of their name. `server` is the
    address if it is one of the user's own model servers, which may need no key.
    """

    backend: str
    dialect: Dialect
    method: str
    url: str
    headers: Headers
    body: bytes
    key: Secret
    hurried: bool = False
    secret_headers: SecretHeaders = ()
    server: str = ""
    silence_s: float | None = None

    def without_key(self, text: bytes) -> bytes:
        """The text with keys redacted: some providers quote the key that they refuse."""
        private = (
            self.key,
            *(secret for name, secret in self.secret_headers if is_secret_header(name)),
        )
        for secret in private:
            if key := secret.reveal().strip().encode():
                text = text.replace(key, b"[redacted]")
        return text


class ProviderAnswer:
    """A provider's answer: `pieces` are the bytes of its body, as they come."""

    def __init__(self, status: int, headers: Headers, pieces: AsyncIterator[bytes]) -> None:
        self.status = status
        self.headers = headers
        self.pieces = pieces

    @property
    def is_stream(self) -> bool:
        kinds = (value for name, value in self.headers if name.lower() == b"content-type")
        return next(kinds, b"").lower().startswith(b"text/event-stream")


class Connections:
    """One pool of connections to all providers."""

    def __init__(self, client: httpx2.AsyncClient, timeouts: CallTimeouts) -> None:
        self.memory = BodyMemory()
        self._client = client
        self._timeouts = timeouts

    @classmethod
    @asynccontextmanager
    async def open(cls, timeouts: CallTimeouts = CallTimeouts()) -> "AsyncGenerator[Connections]":  # noqa: B008 (frozen)
        """Connections are kept for the next call, and closed on leaving."""
        from goent.providers.http_transport import PooledTransport  # noqa: PLC0415 (asyncio and h11 take 30 ms to load)

        direct = PooledTransport(kept=MAX_IDLE, keep_s=IDLE_S)
        async with httpx2.AsyncClient(
            # httpx's own transport goes through a proxy that the environment names.
            transport=None if getproxies() else direct,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_IDLE),
            # A proxy cannot reach models on this machine.
            mounts={f"all://{host}": direct for host in ("127.0.0.1", "localhost", "[::1]")},
            # One client serves many keys: a cookie for one must not be sent with the next.
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        ) as client:
            yield cls(client, timeouts)

    @asynccontextmanager
    async def send(self, call: ModelCall) -> AsyncGenerator[ProviderAnswer]:
        """The provider's answer, whatever its status. Leaving the context hangs up.

        Raises `ProviderDown`, `ProviderTimeout` or `ProviderRefused`, also while the pieces are
        read inside the context.
        """
        headers = _call_headers(call)
        try:
            async with self._started(call, headers) as response:
                passed = _kept_headers(response.headers.raw, frozenset({b"set-cookie"}))
                assert isinstance(response.stream, httpx2.AsyncByteStream)
                yield ProviderAnswer(response.status_code, tuple(passed), aiter(response.stream))
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise _translated_error(call, error) from error

    @asynccontextmanager
    async def _started(
        self, call: ModelCall, headers: list[tuple[bytes, bytes]]
    ) -> AsyncGenerator[httpx2.Response]:
        """The answer, once its head is there, with one limit on all the waits before it.

        To httpx each informational reply counts as progress, and a proxy may send them for ever.
        """
        timeouts = self._timeouts_for(call)
        request = self._client.build_request(
            call.method, call.url, headers=headers, content=call.body or None, timeout=timeouts
        )
        usual = self._timeouts
        longest = usual.connect_s + WRITE_PERIODS * usual.write_s + (timeouts.read or usual.read_s)
        try:
            with anyio.fail_after(longest):
                response = await self._client.send(request, stream=True)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"no answer within {longest:g} s") from error
        try:
            yield response
        finally:
            await response.aclose()

    def _timeouts_for(self, call: ModelCall) -> httpx2.Timeout:
        usual = self._timeouts
        read_s = min(usual.read_s, usual.hurried_s) if call.hurried else usual.read_s
        return httpx2.Timeout(
            connect=usual.connect_s,
            read=read_s if call.silence_s is None else call.silence_s,
            write=usual.write_s,
            pool=usual.connect_s,
        )


async def read_whole(answer: ProviderAnswer, place: str, share: MemoryShare, *, most: int) -> bytes:
    """An answer's whole body, as it came. Raises `AnswerTooLarge` and `AtLimit`."""
    body = bytearray()
    async for piece in answer.pieces:
        if len(body) + len(piece) > most:
            raise AnswerTooLarge(f"{place} sent an answer of more than {most} bytes, the limit")
        share.add(len(piece))
        body += piece
    return bytes(body)


async def read_start(answer: ProviderAnswer, *, most: int, within_s: float) -> bytes:
    """The beginning of a body: a provider that answers with an error may never end it."""
    body = bytearray()
    with anyio.move_on_after(within_s):
        async for piece in answer.pieces:
            body += piece[: most - len(body)]
            if len(body) == most:
                break
    return bytes(body)


def was_never_sent(error: WorkerError) -> bool:
    """Whether the call failed before the provider can have seen it, so that it bills nothing."""
    cause = error.__cause__
    return isinstance(error, ProviderRefused) or isinstance(cause, CONNECT_ERRORS)


def _kept_headers(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> list[tuple[bytes, bytes]]:
    pairs = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in pairs if name == b"connection").lower()
    dropped |= HOP_BY_HOP | {name.strip() for name in named.split(b",")}
    return [(name, value) for name, value in pairs if name not in dropped]


def _call_headers(call: ModelCall) -> list[tuple[bytes, bytes]]:
    secret = [_secret_header(call, name, value) for name, value in call.secret_headers]
    names = {name for name, _ in secret}
    own = [(b"accept-encoding", b"identity"), *_key_header(call)]
    others = (*_kept_headers(call.headers, OWN_HEADERS), *own)
    return [*(pair for pair in others if pair[0] not in names), *secret]


def _secret_header(call: ModelCall, name: str, secret: Secret) -> tuple[bytes, bytes]:
    value = secret.reveal().strip()
    sendable = HEADER_NAME.fullmatch(name) and value.isascii() and value.isprintable()
    if not sendable or name.lower().encode() in HOP_BY_HOP | FRAMING_HEADERS:
        raise ProviderRefused(
            f"the header {name!r} of backend {call.backend!r} in opencode.json cannot be sent: "
            "correct its name and value"
        )
    return name.lower().encode(), value.encode()


def _key_header(call: ModelCall) -> list[tuple[bytes, bytes]]:
    key = call.key.reveal().strip()
    if not key:
        return []
    # Checked here because the HTTP library would quote the key in its error.
    if not (key.isascii() and key.isprintable()):
        raise ProviderRefused(
            f"the key of backend {call.backend!r} has characters that an HTTP header cannot carry: "
            "set it again, without line breaks"
        )
    if call.dialect == "anthropic":
        return [(b"x-api-key", key.encode())]
    return [(b"authorization", b"Bearer " + key.encode())]


def _translated_error(call: ModelCall, error: Exception) -> WorkerError:
    if call.server and isinstance(error, httpx2.ConnectError):
        return ServerNotRunning(not_running_message(call.backend, call.server))
    place = f"backend {call.backend!r} at {call.url!r}"
    if isinstance(error, httpx2.ConnectTimeout):
        return ProviderTimeout(f"cannot connect to {place} in time: check the network")
    if isinstance(error, httpx2.ConnectError):
        reason = str(error) or type(error).__name__
        return ProviderDown(
            f"cannot connect to {place} ({reason}): check its base_url and the network"
        )
    if isinstance(error, httpx2.TimeoutException):
        return ProviderTimeout(f"{place} stopped responding ({type(error).__name__})")
    if isinstance(error, httpx2.InvalidURL | httpx2.UnsupportedProtocol):
        return ProviderRefused(f"{place} has no usable address: correct its base_url")
    return ProviderDown(f"{place} failed: {str(error) or type(error).__name__}")
