"""How do we talk to an MCP server that is a web address? By streamable HTTP, in both eras.

A request is a POST of its own; the answer is a JSON object, or a stream of events in which the
server may tell and ask things before it answers. The older era has sessions, which we end.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import UNSET, Raw

from goent.agent.mcp.heads import Heads, carried, near, place_of, sendable
from goent.agent.mcp.line import MAX_MESSAGE, Callee, ServerTrouble, SessionForgotten
from goent.agent.mcp.messages import CANCELLED, INITIALIZE
from goent.agent.ports import ServerSpec
from goent.llm.sse import SseSplitter
from goent.rpc import BadReply, RpcError, wire
from goent.rpc.wire import ABSENT, CancelRequest, Envelope, ErrorBody

if TYPE_CHECKING:
    import httpx2

LAST_WORD_S = 2.0  # for what is said on leaving
CONNECT_S = 10.0
QUOTED = 300  # characters of a page that is no answer
REOPEN_S = 5.0  # before a stream of news that has ended is opened anew

JSON = "application/json"
EVENTS = "text/event-stream"
NOT_FOUND = 404
REFUSED = (401, 403)


class HttpLine:
    """A server at a URL, for as long as its client is open."""

    last_words = ""

    def __init__(self, client: "httpx2.AsyncClient", spec: ServerSpec, callee: Callee) -> None:
        self._client = client
        self._url = spec.url
        self._callee = callee
        self._heads = Heads(spec.headers)
        self._numbers = count(1)

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        number = next(self._numbers)
        if method == INITIALIZE:
            self._heads.forget()
        try:
            return await self._ask(number, wire.call(number, method, params), method, name)
        except anyio.get_cancelled_exc_class():
            if method != INITIALIZE and not self._heads.stateless:  # there, to hang up is to say so
                notice = CancelRequest(request_id=Raw(b"%d" % number))
                await self._last_word(wire.notification(CANCELLED, notice))
            raise

    async def notify(self, method: str, params: object) -> None:
        async with self._posted(wire.notification(method, params), method) as response:
            if not response.is_success:
                raise self._no_answer(response, await _whole(response))

    async def begin(self, version: str, *, stateless: bool) -> None:
        self._heads.version = carried(version, "its protocol version")
        self._heads.stateless = stateless

    async def over(self) -> ServerTrouble:
        """An address is never gone for good: each request tries anew. Meanwhile, hear its news."""
        if self._heads.session:
            with suppress(ServerTrouble, BadReply):
                await self._listen()
        await anyio.sleep_forever()
        raise AssertionError

    async def leave(self) -> None:
        """End the session, if there is one; a server that does not care need not."""
        if self._heads.session:
            with anyio.move_on_after(LAST_WORD_S, shield=True), suppress(ServerTrouble):
                async with self._sent("DELETE", b"", self._heads.of("")):
                    pass

    async def _ask(self, number: int, body: bytes, method: str, name: str) -> Raw:
        async with self._posted(body, method, name) as response:
            if response.is_success and (session := response.headers.get("mcp-session-id")):
                self._heads.session = carried(session, "its session id")
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.is_success and kind == EVENTS:
                return await self._answer_among_events(response, number)
            page = await _whole(response)
            reply = _read(page) if kind == JSON else None
            if reply is None or (reply.error is ABSENT and not response.is_success):
                raise self._no_answer(response, page)
            return _result(reply)

    async def _answer_among_events(self, response: "httpx2.Response", number: int) -> Raw:
        async with aclosing(_messages(response)) as messages:
            async for message in messages:
                if message.method is not None:
                    await self._heed(message)
                elif bytes(message.id) == b"%d" % number:
                    return _result(message)
        raise ServerTrouble(f"{place_of(self._url)} hung up before it answered")

    async def _listen(self) -> None:
        while True:
            heads = {**self._heads.of(""), "accept": EVENTS}
            async with self._sent("GET", b"", heads) as response:
                if not response.is_success:
                    return
                async with aclosing(_messages(response)) as messages:
                    async for message in messages:
                        if message.method is not None:
                            await self._heed(message)
            await anyio.sleep(REOPEN_S)

    async def _heed(self, message: Envelope) -> None:
        method = message.method or ""
        if message.id is ABSENT:
            await self._callee.notification(method, message.params)
            return
        try:
            reply = wire.result(message.id, await self._callee.request(method, message.params))
        except RpcError as refusal:
            reply = wire.failure(message.id, refusal)
        with suppress(ServerTrouble):
            async with self._posted(reply, ""):
                pass

    async def _last_word(self, body: bytes) -> None:
        with anyio.move_on_after(LAST_WORD_S, shield=True), suppress(ServerTrouble):
            async with self._posted(body, ""):
                pass

    @asynccontextmanager
    async def _posted(
        self, body: bytes, method: str, name: str = ""
    ) -> AsyncGenerator["httpx2.Response"]:
        heads = {
            "content-type": JSON,
            "accept": f"{JSON}, {EVENTS}",
            **self._heads.of(method, name),
        }
        async with self._sent("POST", body, heads) as response:
            if response.status_code == NOT_FOUND and self._heads.session:
                raise SessionForgotten(f"{place_of(self._url)} has forgotten the session")
            yield response

    @asynccontextmanager
    async def _sent(
        self, verb: str, body: bytes, heads: dict[str, str]
    ) -> AsyncGenerator["httpx2.Response"]:
        import httpx2  # noqa: PLC0415 (a tenth of a second, and most sessions need none)

        try:
            async with self._client.stream(
                verb, self._url, content=body, headers=heads
            ) as response:
                yield response
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.DecodingError) as error:
            why = str(error) or type(error).__name__
            raise ServerTrouble(f"{place_of(self._url)} cannot be reached: {why}") from None

    def _no_answer(self, response: "httpx2.Response", page: bytes) -> ServerTrouble:
        said = page[: 4 * QUOTED].decode(errors="replace").strip()[:QUOTED]
        if to := response.headers.get("location"):
            said = f"a redirect to {place_of(to)}, which is not followed: name that address"
        elif response.status_code in REFUSED:
            said = f"it wants to know who asks: check the headers given for it. {said}"
        status = f"HTTP {response.status_code}" + (f", {said}" if said else "")
        return ServerTrouble(f"{place_of(self._url)} gave no answer of MCP's: {status}")


@asynccontextmanager
async def http_line(spec: ServerSpec, callee: Callee) -> AsyncGenerator[HttpLine]:
    """A server at its address; nothing is sent yet."""
    import httpx2  # noqa: PLC0415 (a tenth of a second, and most sessions need none)

    sendable(spec)
    patience = httpx2.Timeout(connect=CONNECT_S, read=None, write=CONNECT_S, pool=CONNECT_S)
    async with httpx2.AsyncClient(timeout=patience, trust_env=not near(spec.url)) as client:
        line = HttpLine(client, spec, callee)
        try:
            yield line
        finally:
            await line.leave()


async def _messages(response: "httpx2.Response") -> AsyncGenerator[Envelope]:
    splitter = SseSplitter(limit=MAX_MESSAGE)
    async for piece in response.aiter_bytes():
        for event in splitter.feed(piece):
            message = _read(event.data)
            if message is not None:
                yield message
        if splitter.dropped:
            raise BadReply(f"an event of more than {MAX_MESSAGE} bytes is too long")


async def _whole(response: "httpx2.Response") -> bytes:
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) > MAX_MESSAGE:
            raise BadReply(f"an answer of more than {MAX_MESSAGE} bytes is too long")
    return bytes(body)


def _read(data: bytes) -> Envelope | None:
    try:
        return wire.read(data)
    except wire.Refused:
        return None


def _result(reply: Envelope) -> Raw:
    if reply.error is ABSENT:
        return reply.result
    try:
        body = msgspec.json.decode(reply.error, type=ErrorBody)
    except msgspec.DecodeError:
        raise BadReply(f"it refused in words of its own: {bytes(reply.error)[:QUOTED]!r}") from None
    raise RpcError(body.code, body.message, None if body.data is UNSET else body.data)
