import anyio
import anyio.lowlevel
import pytest
from msgspec import Raw
from wires import Scripted, connected, wired

from goent.rpc import rpc_peer
from goent.rpc.json_rpc import RpcError, decode_params

pytestmark = pytest.mark.anyio


async def nothing(_params: Raw) -> object:
    return {}


async def test_what_a_handler_said_comes_before_its_reply():
    async def stream(_params: Raw) -> object:
        for number in range(100):
            await working.notify("update", number)
        return "done"

    async with wired(Scripted(stream=stream)) as (working, far):
        await far.say('{"jsonrpc":"2.0","id":1,"method":"stream"}')
        heard = [await far.hear() for _ in range(101)]
    assert [bytes(line.params) for line in heard[:-1]] == [b"%d" % n for n in range(100)]
    assert bytes(heard[-1].result) == b'"done"'


async def test_a_reply_comes_before_what_its_handler_left_to_others():
    async with anyio.create_task_group() as tasks:

        async def begin(_params: Raw) -> object:
            tasks.start_soon(working.notify, "commands", None)
            return "begun"

        async with wired(Scripted(begin=begin)) as (working, far):
            await far.say('{"jsonrpc":"2.0","id":1,"method":"begin"}')
            assert bytes((await far.hear()).result) == b'"begun"'
            assert (await far.hear()).method == "commands"


async def test_a_request_returns_after_the_updates_before_its_reply():
    handled: list[int] = []

    async def slow(params: Raw) -> object:
        await anyio.sleep(0.001)
        handled.append(decode_params(params, int))
        return None

    async def stream(_params: Raw) -> object:
        for number in range(50):
            await working.notify("update", number)
        return "done"

    asking_side, working_side = Scripted(update=slow), Scripted(stream=stream)
    async with connected(asking_side, working_side) as (asking, working):
        assert await asking.request("stream", {}, result=str) == "done"
        assert handled == list(range(50))


async def test_a_request_has_begun_before_the_next_notification_is_handled():
    order: list[str] = []

    async def prompt(_params: Raw) -> object:
        order.append("prompt")
        await anyio.lowlevel.checkpoint()
        return None

    async def cancel(_params: Raw) -> object:
        order.append("cancel")
        return None

    async with wired(Scripted(prompt=prompt, cancel=cancel)) as (_, far):
        await far.say(
            *['{"jsonrpc":"2.0","id":1,"method":"prompt"}', '{"jsonrpc":"2.0","method":"cancel"}']
            * 20
        )
        for _ in range(20):
            await far.hear()
    assert order == ["prompt", "cancel"] * 20


async def test_a_notifications_handler_may_ask_the_peer():
    async def curious(_params: Raw) -> object:
        answers.append(await asking.request("ask", {}, result=str))
        return None

    async def curious_in_a_child(params: Raw) -> object:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(curious, params)

    async def answer(_params: Raw) -> object:
        return "yes"

    async def end(_params: Raw) -> object:
        ended.set()

    answers: list[str] = []
    ended = anyio.Event()
    left = Scripted(tell=curious, tell_child=curious_in_a_child, end=end)
    async with connected(left, Scripted(ask=answer)) as (asking, telling):
        for _ in range(10):
            await telling.notify("tell", {})
            await telling.notify("tell_child", {})
        await telling.notify("end", {})
        with anyio.fail_after(20):
            await ended.wait()
    assert answers == ["yes"] * 20


async def test_the_peer_may_ask_back_before_it_answers_a_notifications_handler():
    async def curious(_params: Raw) -> object:
        await asking.request_raw("ask", {})
        return None

    async def answer(_params: Raw) -> object:
        return await telling.request("ping", {}, result=dict[str, int])

    async with connected(Scripted(tell=curious, ping=nothing), Scripted(ask=answer)) as (
        asking,
        telling,
    ):
        await telling.notify("tell", {})
        with anyio.fail_after(20):
            await telling.request_raw("ping", {})


async def test_requests_queued_behind_a_curious_handler_are_served():
    async def curious(_params: Raw) -> object:
        await peer.request_raw("ask", {})
        return None

    async with wired(Scripted(tell=curious, ping=nothing)) as (peer, far):
        await far.say(
            '{"jsonrpc":"2.0","method":"tell"}',
            '{"jsonrpc":"2.0","id":"p","method":"ping"}',
        )
        replies = {bytes((line := await far.hear()).id): line for _ in range(2)}
        assert b'"p"' in replies
        (question,) = (line for line in replies.values() if line.method == "ask")
        await far.answer(question.id, "{}")


async def test_a_curious_handler_gives_up_when_too_much_comes_before_its_answer(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(rpc_peer, "MAX_QUEUED_MESSAGES", 4)

    async def curious(_params: Raw) -> object:
        await peer.request_raw("ask", {})
        return None

    handler = Scripted(tell=curious, ping=nothing)
    async with wired(handler) as (peer, far):
        await far.say('{"jsonrpc":"2.0","method":"tell"}')
        await far.hear()
        for _ in range(20):
            await far.say(*['{"jsonrpc":"2.0","method":"other"}'] * 10)
        await far.say('{"jsonrpc":"2.0","id":"p","method":"ping"}')
        while await far.hear_id() != '"p"':
            pass
    assert isinstance(handler.errors[0][1], RpcError)
    assert len(handler.told) == 200


async def test_a_slow_handler_makes_the_peer_wait():
    gate = anyio.Event()

    async def slow(_params: Raw) -> object:
        await gate.wait()
        return None

    sent = 0
    receiving = Scripted(tell=slow)
    async with connected(Scripted(), receiving) as (telling, _):

        async def flood() -> None:
            nonlocal sent
            while sent < 100_000:
                await telling.notify("tell", "x" * 1000)
                sent += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            before = -1
            while before != sent:
                before = sent
                await anyio.sleep(0.1)
            assert sent < 10_000  # a few megabytes are under way, and no more
            tasks.cancel_scope.cancel()
        gate.set()


async def test_above_its_limit_a_peer_reads_no_further_requests():
    gate = anyio.Event()
    running = 0
    most = 0

    async def count(_params: Raw) -> object:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return None

    async with wired(Scripted(count=count), max_requests=3) as (_, far):
        for number in range(50):
            await far.say(f'{{"jsonrpc":"2.0","id":{number},"method":"count"}}')
        while running < 3:
            await anyio.lowlevel.checkpoint()
        gate.set()
        assert {await far.hear_id() for _ in range(50)} == {str(number) for number in range(50)}
    assert most == 3


async def test_above_its_limit_a_peer_that_waits_for_an_answer_refuses():
    async def ask(_params: Raw) -> object:
        return await peer.request("permission", {}, result=str)

    async with wired(Scripted(ask=ask), max_requests=1) as (peer, far):
        await far.say(*(f'{{"jsonrpc":"2.0","id":{n},"method":"ask"}}' for n in ("1", "2")))
        asked, refused = await far.hear(), await far.hear()
        assert (bytes(refused.id), refused.code) == (b"2", -32001)
        await far.answer(asked.id, '"yes"')
        assert bytes((await far.hear()).result) == b'"yes"'


async def test_replies_that_nobody_reads_stop_the_reading():
    async def big(_params: Raw) -> object:
        return "x" * 100_000

    asked = 0
    async with wired(Scripted(big=big), max_requests=10) as (_, far):
        async with anyio.create_task_group() as tasks:

            async def flood() -> None:
                nonlocal asked
                while asked < 100_000:
                    await far.say('{"jsonrpc":"2.0","id":1,"method":"big"}')
                    asked += 1

            tasks.start_soon(flood)
            before = -1
            while before != asked:
                before = asked
                await anyio.sleep(0.1)
            assert asked < 10_000
            tasks.cancel_scope.cancel()
        await far.receive.aclose()
