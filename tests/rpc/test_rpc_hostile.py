"""However it comes, and whatever comes with it: the same messages, and no wait for ever."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from wires import Scripted, wired

from goent.rpc.json_rpc import BadReply

pytestmark = pytest.mark.anyio
PING = '{"jsonrpc":"2.0","id":"good","method":"ping"}'


async def ping(_params: Raw) -> object:
    return {}


@pytest.mark.spec("A03")
async def test_a_peer_that_sends_garbage_and_reads_nothing_is_still_heard():
    heard = anyio.Event()

    async def tell(_params: Raw) -> object:
        heard.set()

    async with wired(Scripted(tell=tell)) as (_, far):
        with anyio.fail_after(10):
            await far.say(*[b"{"] * 20_000, b'{"jsonrpc":"2.0","method":"tell"}')
            await heard.wait()
        await far.receive.aclose()


@pytest.mark.spec("A03")
async def test_whoever_waits_for_a_line_beyond_the_limit_waits_no_longer():
    bulk = '"params":"' + "x" * 1000 + '"'
    async with wired(Scripted(ping=ping), max_line=200) as (peer, far):
        await far.say(f'{{"jsonrpc":"2.0","id":"b","method":"greet",{bulk}}}')
        refused = await far.hear()
        assert (refused.code, bytes(refused.id)) == (-32600, b'"b"')
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                with pytest.raises(BadReply, match="at most 200 bytes"):
                    await peer.request_raw("ask", {}, timeout=5)

            tasks.start_soon(ask)
            number = await far.hear_id()
            await far.say(f'{{"jsonrpc":"2.0","id":{number},"result":"{"x" * 1000}"}}', PING)
        assert await far.hear_id() == '"good"'


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 12))
def test_any_split_of_the_stream_gives_the_same_messages(sizes: list[int], count: int):
    stream = b"".join(b'{"jsonrpc":"2.0","method":"tell","params":%d}\n' % n for n in range(count))

    async def run() -> None:
        handler = Scripted(ping=ping)
        async with wired(handler) as (_, far):
            rest, turn = stream, 0
            while rest:
                size = sizes[turn % len(sizes)]
                await far.send.send(rest[:size])
                rest, turn = rest[size:], turn + 1
            await far.say(PING)
            assert await far.hear_id() == '"good"'
        assert handler.told == [("tell", b"%d" % n) for n in range(count)]

    anyio.run(run)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(6)), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_any_order_of_the_replies_reaches_whoever_asked(order: list[int], noise: list[int]):
    async def run() -> None:
        got: dict[int, int] = {}

        async def ask(number: int) -> None:
            got[number] = await peer.request("ask", number, result=int, timeout=5)

        async with wired(Scripted()) as (peer, far), anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(ask, number)
            asked = {int(bytes(line.params)): line.id for line in [await far.hear() for _ in order]}
            for number, more in zip(order, noise, strict=True):
                await far.say(
                    *['{"jsonrpc":"2.0","method":"tell"}', '{"id":999,"result":1}'] * more
                )
                await far.answer(asked[number], str(number * 10))
                await far.answer(asked[number], "77")  # once more is once too often
        assert got == {number: number * 10 for number in range(6)}

    anyio.run(run)


@pytest.mark.spec("A03")
@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=80), max_size=8))
def test_after_any_bytes_the_next_request_is_served(garbage: list[bytes]):
    async def run() -> None:
        async with wired(Scripted(ping=ping), max_line=60) as (_, far):
            await far.say(*garbage, PING)
            while await far.hear_id() != '"good"':
                pass

    anyio.run(run)


async def test_whoever_waits_for_a_slow_reader_is_let_go_when_the_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("goent.rpc.rpc_peer.FINISH_S", 0.05)
    async with wired(Scripted()) as (peer, far), anyio.create_task_group() as tasks:
        peer.notify_now("tell", "it runs")
        await far.hear()
        while not peer.is_crowded:
            peer.notify_now("tell", "x" * 10_000)
        waited = anyio.Event()

        async def wait() -> None:
            await peer.wait_for_room()
            waited.set()

        tasks.start_soon(wait)
        await peer.aclose()
        with anyio.fail_after(20):
            await waited.wait()
        peer.notify_now("tell", "nobody hears it")
        assert not peer.is_crowded


async def test_half_a_character_is_sent_as_a_whole_one():
    async with wired(Scripted()) as (peer, far):
        peer.notify_now("tell", {"name": "caf\udce9", "raw": Raw(b'{"a": [1]}')})
        assert bytes((await far.hear()).params) == b'{"name": "caf\\ufffd", "raw": {"a": [1]}}'
