"""Which calls have to be in the books, and how early are they told of?"""

import anyio
import pytest
from fake_provider import Script, anthropic_pieces, openai_pieces
from gateway_world import World, open_world
from witness import Witness

from goent.domain.money import CallDelay, CallSizer, FinishedCall, StartedCall
from goent.domain.settings import Backend

pytestmark = pytest.mark.anyio

BODY = b'{"model":"glm-4.7","stream":true}'
PAGE = Script([b"<h1>502</h1>"], content_type="text/html")


async def made(world: World, rest: str = "chat/completions", backend: str = "glm") -> FinishedCall:
    await world.client.post(world.url(rest, backend), content=BODY, headers=world.headers())
    (call,) = world.calls
    return call


@pytest.mark.spec("P33")
async def test_a_call_is_told_of_before_it_goes_out():
    class Watching(Witness):
        async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
            assert world.provider.seen == []
            return await super().call_started(call, size)

    async with open_world(Watching()) as world:
        world.provider.script = Script(openai_pieces())
        ended = await made(world)
        (begun,) = world.witness.begins
    assert begun.id == ended.id and (begun.worker, begun.model) == ("w1", "glm-4.7")
    assert (ended.billable, ended.is_final) == (True, True)


@pytest.mark.spec("P33")
@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_nothing_is_owed_for_a_call_that_the_provider_refused(world: World, status: int):
    world.provider.script = Script([b"{}"], status=status, content_type="application/json")
    assert not (await made(world)).billable


@pytest.mark.spec("P33")
async def test_nothing_is_owed_to_a_provider_that_was_not_reached(world: World):
    world.backends["glm"] = Backend(id="glm", base_url="http://127.0.0.1:1/v1", key_env="GLM_KEY")
    assert not (await made(world)).billable


@pytest.mark.spec("P33")
@pytest.mark.parametrize(
    "script",
    [
        Script(openai_pieces()[:1], breaks=True),
        Script([], waits=-1),
        PAGE,
        Script(openai_pieces(), content_type="text/html"),
    ],
    ids=["cut", "silent", "a page", "mislabeled"],
)
async def test_what_may_be_billed_is_owed_though_its_usage_is_unknown(world: World, script: Script):
    world.provider.script = script
    call = await made(world)
    assert (call.billable, call.usage) == (True, None)


@pytest.mark.spec("P33")
async def test_what_a_cut_stream_told_is_not_called_the_whole(world: World):
    world.provider.script = Script(anthropic_pieces()[:2], breaks=True)
    call = await made(world, "messages", "anth")
    assert call.usage and call.usage.input == 500
    assert (call.billable, call.is_final) == (True, False)


@pytest.mark.spec("P33")
async def test_a_worker_that_hangs_up_before_an_answer_may_owe_it(world: World):
    world.provider.script = script = Script([], waits=-1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made, world)
        await script.reached.wait()
        tasks.cancel_scope.cancel()
    await world.gateway.settle("w1")
    (call,) = world.calls
    assert (call.billable, call.usage, call.status) == (True, None, 499)
