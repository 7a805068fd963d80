"""A call that may not go out, or not yet: what becomes of it on its way?"""

import anyio
import msgspec
import pytest
from fake_provider import Script, anthropic_pieces, openai_pieces
from gateway_world import SPARE, World, open_world, told
from witness import Witness

from goent.domain.errors import BudgetSpent
from goent.domain.money import CallDelay, CallSize, CallSizer, StartedCall

pytestmark = pytest.mark.anyio

SAID = "the budget of task w1, $0.50 (budget_usd), has no room: 503 or 429 tokens, try again"


def body(*, stream: bool = True, most: object = None) -> bytes:
    talk = [{"role": "user", "content": "Say hello to everybody, please."}]
    asked = {"model": "glm-4.7", "stream": stream, "messages": talk, "max_tokens": most}
    return msgspec.json.encode(asked)


class Strict(Witness):
    """Lets nothing out."""

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        await super().call_started(call, size)
        raise BudgetSpent(SAID)


class Busy(Witness):
    """Hinders calls to the backend as often as it is told to."""

    def __init__(self, times: int, backend: str = "glm") -> None:
        super().__init__()
        self.times = times
        self._backend = backend
        self.sizes: list[CallSize] = []

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        self.sizes.append(await size())
        if self.times and call.backend == self._backend:
            self.times -= 1
            return CallDelay(reason="glm may have 2 calls at once", wait_s=0.01)
        return await super().call_started(call, size)


class Slow(Witness):
    """Notes a call, and takes its time to say so."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = anyio.Event()

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        await super().call_started(call, size)
        self.reached.set()
        await anyio.sleep_forever()


async def asked(world: World, *, stream: bool = True, anthropic: bool = False):
    rest, backend = ("messages", "anth") if anthropic else ("chat/completions", "glm")
    return await world.client.post(
        world.url(rest, backend), content=body(stream=stream), headers=world.headers()
    )


@pytest.mark.spec("P35")
@pytest.mark.parametrize("anthropic", [True, False], ids=["anthropic", "openai"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_call_without_money_is_answered_402_and_goes_nowhere(
    *, anthropic: bool, stream: bool
):
    async with open_world(Strict()) as world:
        world.fallbacks.append(SPARE)
        answer = await asked(world, stream=stream, anthropic=anthropic)
        assert answer.status_code == 402
        assert answer.headers["content-type"] == "application/json"
        assert told(answer) == f"go-ent: budget_exceeded: {SAID}"
        assert "503" not in answer.text and "again" not in answer.text, "nothing to retry for"
        assert (world.provider.seen, world.other.seen, world.calls) == ([], [], [])


@pytest.mark.spec("P38")
async def test_a_call_waits_for_its_turn_where_nobody_else_can_be_asked():
    async with open_world(Busy(times=2)) as world:
        world.provider.script = Script(openai_pieces())
        with anyio.fail_after(20):
            answer = await asked(world)
        assert answer.status_code == 200
        assert len(world.provider.seen) == 1
        assert world.witness.notices == ["w1: waiting: glm may have 2 calls at once"], "said once"


@pytest.mark.spec("P37", "P38")
async def test_a_call_that_would_have_to_wait_goes_to_the_fallback():
    async with open_world(Busy(times=1)) as world:
        world.fallbacks.append(SPARE)
        world.other.script = Script(openai_pieces())
        world.provider.script = Script(openai_pieces())
        assert (await asked(world)).status_code == 200
        assert (len(world.provider.seen), len(world.other.seen)) == (0, 1)
        (move,) = world.witness.moves
        assert (move.to_provider, move.reason) == ("spare", "glm may have 2 calls at once")
        assert (await asked(world)).status_code == 200
        assert len(world.provider.seen) == 1, "it did not fail, so it is asked next time"


@pytest.mark.spec("P35")
async def test_a_call_is_sized_by_its_text_and_by_what_it_asks_for():
    async with open_world(Busy(times=0)) as world:
        world.provider.script = Script(anthropic_pieces())
        for most in (None, 100, 48_000, "no"):
            await world.client.post(
                world.url("messages", "anth"), content=body(most=most), headers=world.headers()
            )
        assert isinstance(world.witness, Busy)
        outputs = [size.output for size in world.witness.sizes]
        assert outputs == [4096, 100, 4096, 4096]
        assert all(15 < size.input < 80 for size in world.witness.sizes)


@pytest.mark.spec("P33")
async def test_a_worker_that_hangs_up_while_it_waits_leaves_nothing_open():
    slow = Slow()
    async with open_world(slow) as world:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked, world)
            await slow.reached.wait()
            tasks.cancel_scope.cancel()
        await world.gateway.settle("w1")
        (call,) = world.calls
    assert (call.id, call.billable) == (slow.begins[0].id, False)
