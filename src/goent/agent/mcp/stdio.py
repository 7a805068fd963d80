"""How do we talk to an MCP server that is a program of ours? By lines on its pipes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from msgspec import Raw

from goent.agent.mcp.line import MAX_MESSAGE, Callee, ServerTrouble
from goent.agent.mcp.messages import CANCELLED
from goent.agent.ports import Desk, ServerSpec
from goent.domain.errors import WorkerCrashed
from goent.proc import Supervised, new_mark, supervised
from goent.rpc import ConnectionLost, Peer

GRACE = 1.0  # seconds between one way of asking it to end and the next, and for its exit code
LAST_WORDS = 600  # characters of standard error that a warning quotes


class _McpPeer(Peer):
    cancels = CANCELLED


class StdioLine:
    """A server on pipes. Both eras look the same here."""

    def __init__(self, peer: Peer, child: Supervised) -> None:
        self._peer = peer
        self._child = child
        self._ended = anyio.Event()

    async def run(self) -> None:
        await self._peer.run()
        self._ended.set()

    async def request(self, method: str, params: object, *, name: str = "") -> Raw:
        try:
            return await self._peer.request_raw(method, params)
        except ConnectionLost:
            raise await self.over() from None

    async def notify(self, method: str, params: object) -> None:
        with suppress(ConnectionLost):  # the next request says how it ended
            await self._peer.notify(method, params)

    async def begin(self, version: str, *, stateless: bool) -> None:
        return

    async def over(self) -> ServerTrouble:
        await self._ended.wait()
        code = None
        with anyio.move_on_after(GRACE):
            code = await self._child.wait()
        how = "closed its output" if code is None else f"ended with exit code {code}"
        return ServerTrouble(f"it {how}{self.last_words}")

    @property
    def last_words(self) -> str:
        words = self._child.stderr[-LAST_WORDS:]
        return f"; its last words: {words}" if words else ""


@asynccontextmanager
async def stdio_line(spec: ServerSpec, desk: Desk, callee: Callee) -> AsyncGenerator[StdioLine]:
    """A started server, which is gone with all that it started when the context closes."""
    command = [spec.command, *spec.arguments]
    env = {**desk.environ, **spec.environ}
    mark = new_mark(desk.owner)
    try:
        async with supervised(command, cwd=desk.cwd, env=env, mark=mark, grace=GRACE) as child:
            peer = _McpPeer(child.stdout, child.stdin, callee, max_line=MAX_MESSAGE)
            line = StdioLine(peer, child)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(line.run)
                yield line
                await peer.aclose()
    except WorkerCrashed as error:
        raise ServerTrouble(f"it {error}") from None
