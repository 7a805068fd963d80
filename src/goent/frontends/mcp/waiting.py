"""How does a tool call wait for workers, through the permission questions that they ask?

The call itself is made first, without any waiting, so that a refusal or a worker's id is there at
once. Then it is waited for, question by question. Where a client is asked by way of an answer to
its own call, the wait is put into words (`stored`) and taken up again when the client comes back.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import anyio
import msgspec
from msgspec import Raw

from goent.core.enquiries import Enquiries
from goent.core.operation import Caller, Operation
from goent.core.operations import Operations
from goent.domain.errors import RequestError
from goent.domain.replies import Prompted, Question, Spawned, Status, Waited
from goent.domain.requests import MAX_WAIT_S, PromptRequest, SpawnRequest, WaitRequest
from goent.domain.swarms import (
    SWARMS_OVER,
    TASKS_OVER,
    SwarmSpawnRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.domain.types import ENDED, Value
from goent.frontends.mcp.asking import BY, Asking, Outcome, asking

Reply = Spawned | Prompted | Waited | SwarmStatus
Ask = Callable[[Status, Question], Awaitable[Outcome]]

LIMITS = {
    "worker_spawn": "wait_s",
    "worker_prompt": "wait_s",
    "worker_wait": "timeout_s",
    "swarm_spawn": "wait_s",
    "swarm_wait": "timeout_s",
}
REPLIES: dict[str, type[Reply]] = {
    "worker_spawn": Spawned,
    "worker_prompt": Prompted,
    "worker_wait": Waited,
    "swarm_spawn": SwarmStatus,
    "swarm_wait": SwarmStatus,
}
MOST_FORMS = 8  # that a call may answer with; a client gives up on its own after ten


class Wait(Value, frozen=True, kw_only=True):
    """A call under way: the reply as it stands, and the seconds that are left to wait."""

    reply: Reply
    left: float
    any: bool = False
    forms: int = 0

    @property
    def worker_ids(self) -> tuple[str, ...]:
        if isinstance(self.reply, Waited):
            return tuple(status.worker_id for status in self.reply.workers)
        if isinstance(self.reply, SwarmStatus):
            living = [line for line in self.reply.tasks if line.state not in TASKS_OVER]
            return tuple(line.worker_id for line in living if line.worker_id)
        return (self.reply.worker_id,)


class _Stored(Value, frozen=True, kw_only=True):
    tool: str
    reply: Raw
    left: float
    any: bool
    forms: int
    asked: Asking


def seconds(operation: Operation, arguments: Mapping[str, object]) -> float:
    """How long the call wants to wait; 0 also for one that is about to be refused."""
    try:
        request = msgspec.convert(arguments, operation.request, strict=False)
    except msgspec.ValidationError:
        return 0.0
    match request:
        case WaitRequest() | SwarmWaitRequest():
            return request.timeout_s
        case SpawnRequest() | PromptRequest() | SwarmSpawnRequest():
            return request.wait_s or 0.0
        case _:
            return 0.0


def stored(wait: Wait, tool: str, asked: Asking) -> str:
    """Plain, not sealed: it lets a client do nothing that `worker_wait` would not."""
    state = _Stored(
        tool=tool,
        reply=Raw(msgspec.json.encode(wait.reply)),
        left=wait.left,
        any=wait.any,
        forms=wait.forms + 1,
        asked=asked,
    )
    return msgspec.json.encode(state).decode()


class Waiting:
    """Waits on behalf of callers, and passes on what they answer."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._operations = operations
        self._enquiries = enquiries

    async def begun(
        self, operation: Operation, arguments: Mapping[str, object], left: float, caller: Caller
    ) -> Wait:
        """The call made, and nothing waited for yet."""
        at_once = {**arguments, LIMITS[operation.name]: 0}
        reply = await operation.call(at_once, caller)
        assert isinstance(reply, Reply), "only these wait"
        if not isinstance(reply, Waited):
            return Wait(reply=reply, left=left)
        asked = msgspec.convert(arguments, WaitRequest, strict=False)
        return Wait(reply=reply, left=left, any=asked.any)

    async def taken_up(self, state: str, tool: str) -> tuple[Wait, Asking]:
        """What `stored` put into words."""
        try:
            found = msgspec.json.decode(state, type=_Stored)
            reply = msgspec.json.decode(found.reply, type=REPLIES[tool])
        except (msgspec.DecodeError, KeyError) as error:
            raise RequestError(f"requestState {state[:80]!r} is not go-ent's: {error}") from None
        if found.tool != tool or not 0 <= found.left <= MAX_WAIT_S:
            raise RequestError(f"requestState is of {found.tool!r}, the call is {tool!r}")
        wait = Wait(reply=reply, left=found.left, any=found.any, forms=found.forms)
        await self._enquiries.recall(WaitRequest(worker_ids=wait.worker_ids))
        return wait, found.asked

    async def until_asked(self, wait: Wait, caller: Caller) -> Wait:
        """Until the workers have ended, the time is up, or one has a question."""
        while wait.left > 0 and not self.is_over(wait) and not self.open_question(wait):
            wait = await self.go_on(wait, caller)
        return wait

    async def see_through(self, wait: Wait, caller: Caller, ask: Ask) -> Reply:
        """Until the workers have ended or the time is up; questions are asked on the way."""
        wait = await self.until_asked(wait, caller)
        while asked := self.open_question(wait):
            status, question = asked
            outcome = await ask(status, question)
            if outcome is None:
                break
            await self.pass_on(outcome, asking(status, question), caller)
            wait = await self.until_asked(await self.go_on(wait, caller), caller)
        return wait.reply

    def open_question(self, wait: Wait) -> tuple[Status, Question] | None:
        if self.is_over(wait):
            return None
        for status in map(self._enquiries.status, wait.worker_ids):
            if status.permission:
                return status, status.permission
        return None

    async def pass_on(self, outcome: Outcome, asked: Asking, caller: Caller) -> None:
        """The answer to the worker; somebody else may have been faster, and that is no harm."""
        if outcome is None or outcome == "elsewhere":
            return
        answer = {
            "worker_id": asked.worker_id,
            "permission_id": asked.permission_id,
            "option": outcome.answer,
            "message": outcome.instead,
        }
        with suppress(RequestError):
            await self._operations.table["worker_answer"].call(answer, replace(caller, name=BY))

    async def go_on(self, wait: Wait, caller: Caller) -> Wait:
        """Wait some more, until there is something to look at."""
        begun = anyio.current_time()
        reply, limit = wait.reply, min(wait.left, MAX_WAIT_S)
        with anyio.move_on_after(limit):
            if isinstance(reply, SwarmStatus):
                asked = {"swarm_id": reply.swarm_id, "timeout_s": limit}
                await self._operations.table["swarm_wait"].call(asked, caller)
            else:
                if isinstance(reply, Prompted):
                    await self._enquiries.turn_begun(reply.worker_id, reply.turn)
                request = WaitRequest(worker_ids=wait.worker_ids, any=wait.any, timeout_s=limit)
                await self._enquiries.wait(request, caller.on_progress)
        left = max(0.0, wait.left - (anyio.current_time() - begun))
        return msgspec.structs.replace(wait, reply=await self.renewed(wait), left=left)

    async def renewed(self, wait: Wait) -> Reply:
        """The reply as it would be now."""
        reply = wait.reply
        if isinstance(reply, SwarmStatus):
            return self._operations.swarms.status(reply.swarm_id)
        if isinstance(reply, Waited):
            request = WaitRequest(worker_ids=wait.worker_ids, any=wait.any, timeout_s=0)
            return await self._enquiries.wait(request, _nobody)
        status = self._enquiries.status(reply.worker_id)
        state = status.state
        if isinstance(reply, Prompted) and status.turn != reply.turn:
            state = "starting"
        ended = state in ENDED
        result = await self._enquiries.result(reply.worker_id) if ended else None
        evidence = result.evidence if result else None
        return msgspec.structs.replace(reply, state=state, evidence=evidence, result=result)

    def is_over(self, wait: Wait) -> bool:
        """Whether the workers have ended; a question is not an end."""
        if isinstance(wait.reply, SwarmStatus):
            return self._operations.swarms.status(wait.reply.swarm_id).state in SWARMS_OVER
        statuses = [self._enquiries.status(worker) for worker in wait.worker_ids]
        if isinstance(wait.reply, Prompted):
            turn, (status,) = wait.reply.turn, statuses
            ended = status.turn == turn and status.state in ENDED
            return ended or status.turn > turn or not status.open
        ended = [status.state in ENDED for status in statuses]
        return any(ended) if wait.any else all(ended)


async def _nobody(_: Status, __: str) -> None: ...
