"""Where the guard inside a worker's program asks whether a tool call may run."""

import anyio
import msgspec
from msgspec import Struct

from goent.domain.guard import GuardedCall, ToolGuard, Verdict
from goent.gateway import http
from goent.gateway.http import HungUp, Receive, Refused, Request, Send
from goent.upstream.memory import Share

GUARD_BACKEND = "goent-guard"


class _Hello(Struct):
    directory: str


class _Shell(Struct):
    owner: str


class _Failed(Struct):
    owner: str
    output: str


class _Hint(Struct):
    hint: str


async def attend(
    request: Request, guard: ToolGuard | None, receive: Receive, send: Send, share: Share
) -> None:
    """Answer one question of a guard. Without anybody who decides, nothing is allowed."""
    body = await http.read_body(receive, share)
    if guard is None:
        raise Refused(403, "nobody decides on the tool calls of this process")
    try:
        match request.method, request.rest:
            case "POST", "hello":
                guard.loaded(msgspec.json.decode(body, type=_Hello).directory)
                answer = Verdict(allow=True)
            case "POST", "shell":
                variables = guard.shell(msgspec.json.decode(body, type=_Shell).owner)
                await http.reply(send, 200, http.JSON, msgspec.json.encode(variables))
                return
            case "POST", "hint":
                failed = msgspec.json.decode(body, type=_Failed)
                hint = guard.hint(failed.owner, failed.output)
                await http.reply(send, 200, http.JSON, msgspec.json.encode(_Hint(hint=hint)))
                return
            case "POST", "call":
                call = msgspec.json.decode(body, type=GuardedCall)
                answer = await _decide(guard, call, receive)
            case _:
                raise Refused(404, f"{request.method} {request.rest!r} is not offered here")
    except msgspec.DecodeError as error:
        raise Refused(400, f"the guard's message cannot be read: {error}") from error
    await http.reply(send, 200, http.JSON, msgspec.json.encode(answer))


async def _decide(guard: ToolGuard, call: GuardedCall, receive: Receive) -> Verdict:
    """The verdict, unless the process that asked is gone before."""
    verdict: Verdict | None = None

    async def give_up() -> None:
        await http.hung_up(receive)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(give_up)
        verdict = await guard.judge(call)
        tasks.cancel_scope.cancel()
    if verdict is None:
        raise HungUp
    return verdict
