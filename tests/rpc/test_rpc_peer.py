import anyio
import anyio.lowlevel
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct
from wires import Far, Line, Scripted, connected, pipe, wired

from goent.rpc import rpc_peer
from goent.rpc.json_rpc import (
    BadReply,
    ConnectionLost,
    InvalidParams,
    MethodNotFound,
    RpcError,
    decode_params,
)
from goent.rpc.rpc_peer import Peer

pytestmark = pytest.mark.anyio


class Greeting(Struct):
    name: str


async def greet(params: Raw) -> object:
    return f"hello {decode_params(params, Greeting).name}"


async def for_ever(_params: Raw) -> object:
    await anyio.sleep_forever()


PING = '{"jsonrpc":"2.0","id":99,"method":"greet","params":{"name":"you"}}'


async def alive(heard: Line) -> None:
    assert (bytes(heard.id), bytes(heard.result)) == (b"99", b'"hello you"')


@pytest.mark.spec("A01")
async def test_a_request_gets_its_result():
    async with connected(Scripted(), Scripted(greet=greet)) as (asking, _):
        assert await asking.request("greet", Greeting(name="you"), result=str) == "hello you"


@pytest.mark.spec("A01")
async def test_the_wire_is_json_rpc():
    async with wired(Scripted(greet=greet)) as (_, far):
        await far.say(PING)
        with anyio.fail_after(20):
            line = await far.receive.receive()
    assert line == b'{"jsonrpc":"2.0","id":99,"result":"hello you"}\n'


@pytest.mark.spec("A01")
async def test_an_unknown_method_is_refused():
    async with connected(Scripted(), Scripted()) as (asking, _):
        with pytest.raises(RpcError, match="'nope'") as caught:
            await asking.request_raw("nope", {})
    assert caught.value.code == -32601


@pytest.mark.spec("A01")
async def test_bad_params_are_refused_by_the_field():
    async with connected(Scripted(), Scripted(greet=greet)) as (asking, _):
        with pytest.raises(RpcError, match="name: expected text, not 5") as caught:
            await asking.request_raw("greet", {"name": 5})
    assert caught.value.code == -32602


@pytest.mark.spec("A01")
async def test_an_error_keeps_its_code_and_data():
    async def fail(_params: Raw) -> object:
        raise RpcError(-32000, "log in first", {"methods": ["key"]})

    async with connected(Scripted(), Scripted(fail=fail)) as (asking, _):
        with pytest.raises(RpcError, match="log in first") as caught:
            await asking.request_raw("fail", None)
    assert caught.value.code == -32000
    assert bytes(caught.value.data or b"") == b'{"methods":["key"]}'


async def test_a_bug_in_a_handler_is_reported_here_and_not_shown_there():
    async def fail(_params: Raw) -> object:
        raise ValueError("the secret")

    async def unspeakable(_params: Raw) -> object:
        return object()

    handler = Scripted(fail=fail, unspeakable=unspeakable)
    async with wired(handler) as (_, far):
        for method in ("fail", "unspeakable"):
            await far.say(f'{{"jsonrpc":"2.0","id":1,"method":"{method}"}}')
            reply = await far.hear()
            assert reply.code == -32603
            assert "secret" not in str(reply.error)
    assert [type(error) for _, error in handler.errors] == [ValueError, TypeError]


@pytest.mark.spec("A02")
async def test_a_notification_gets_no_reply_whatever_becomes_of_it():
    async def fail(_params: Raw) -> object:
        raise MethodNotFound("fail")

    handler = Scripted(fail=fail, greet=greet)
    async with wired(handler) as (_, far):
        await far.say(
            '{"jsonrpc":"2.0","method":"unknown"}',
            '{"jsonrpc":"2.0","method":"fail","params":[]}',
            '{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}',
            PING,
        )
        await alive(await far.hear())
    assert [method for method, _ in handler.errors] == ["fail", "$/cancel_request"]


@pytest.mark.spec("A02")
async def test_notifications_are_handled_in_order_however_long_each_takes():
    order: list[int] = []

    async def uneven(params: Raw) -> None:
        number = decode_params(params, int)
        for _ in range(number % 3):
            await anyio.lowlevel.checkpoint()
        order.append(number)

    async with connected(Scripted(), Scripted(tell=uneven, greet=greet)) as (telling, _):
        for number in range(300):
            await telling.notify("tell", number)
        await telling.request_raw("greet", Greeting(name="you"))
        assert order == list(range(300))


@pytest.mark.spec("A03")
async def test_the_connection_survives_all_that_it_cannot_read():
    bad = [b"{not json", b"\xff", b"[1,2,3]", b"7", b"{}", b'{"jsonrpc":"1.0","id":3,"method":"x"}']
    async with wired(Scripted(greet=greet)) as (_, far):
        await far.say(*bad, b"", b"  \r", PING)
        replies = [await far.hear() for _ in bad]
        await alive(await far.hear())
    assert [reply.code for reply in replies] == [-32700, -32700, -32600, -32600, -32600, -32600]
    assert [bytes(reply.id) for reply in replies] == [b"null"] * 5 + [b"3"]


@pytest.mark.spec("A03")
async def test_a_line_beyond_the_limit_is_refused_and_skipped():
    async with wired(Scripted(greet=greet), max_line=100) as (_, far):
        await far.say(b"x" * 1_000_000, PING)
        reply = await far.hear()
        await alive(await far.hear())
    assert (reply.code, bytes(reply.id)) == (-32600, b"null")
    assert reply.error and "100 bytes" in reply.error.message


@pytest.mark.spec("A03")
async def test_two_peers_do_not_refuse_each_others_refusals():
    async with wired(Scripted(greet=greet)) as (_, far):
        await far.say('{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}', PING)
        await alive(await far.hear())


@pytest.mark.spec("A03")
@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=20))
def test_arbitrary_bytes_never_end_the_connection(chunks: list[bytes]):
    async def drive() -> None:
        async with wired(Scripted(greet=greet)) as (_, far):
            for chunk in chunks:
                if chunk:
                    await far.send.send(chunk)
            await far.say("", PING)
            while bytes((reply := await far.hear()).id) != b"99":
                assert reply.code in (-32700, -32600, -32601)
            await alive(reply)

    anyio.run(drive)


async def test_a_reply_nobody_waits_for_is_dropped():
    async with wired(Scripted(greet=greet)) as (_, far):
        await far.say('{"jsonrpc":"2.0","id":5,"result":{}}', '{"id":"x","error":"?"}', PING)
        await alive(await far.hear())


async def test_a_reply_of_another_shape_is_called_that():
    async def number(_params: Raw) -> object:
        return 5

    async with connected(Scripted(), Scripted(number=number)) as (asking, _):
        with pytest.raises(BadReply, match="'number': expected text, not 5"):
            await asking.request("number", {}, result=str)


async def test_a_refusal_in_no_known_shape_is_called_that():
    async with wired(Scripted()) as (peer, far), anyio.create_task_group() as tasks:

        async def answer() -> None:
            number = await far.hear_id()
            await far.say(f'{{"jsonrpc":"2.0","id":{number},"error":"no"}}')

        tasks.start_soon(answer)
        with pytest.raises(BadReply, match="no"):
            await peer.request_raw("ask", {})


async def test_params_that_cannot_be_written_are_the_callers_error():
    async with connected(Scripted(), Scripted(greet=greet)) as (asking, _):
        with pytest.raises(TypeError):
            await asking.request_raw("greet", object())
        assert await asking.request("greet", Greeting(name="you"), result=str) == "hello you"


async def test_requests_run_side_by_side():
    turns = anyio.Event()

    async def first(_params: Raw) -> object:
        await turns.wait()

    async def second(_params: Raw) -> object:
        turns.set()

    async with wired(Scripted(first=first, second=second)) as (_, far):
        await far.say(
            '{"jsonrpc":"2.0","id":1,"method":"first"}',
            '{"jsonrpc":"2.0","id":2,"method":"second"}',
        )
        assert {await far.hear_id(), await far.hear_id()} == {"1", "2"}


async def test_a_request_can_be_cancelled_from_afar():
    async with wired(Scripted(wait=for_ever)) as (_, far):
        await far.say(
            '{"jsonrpc":"2.0","id":"a","method":"wait"}',
            '{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a"}}',
        )
        reply = await far.hear()
    assert (bytes(reply.id), reply.code) == (b'"a"', -32800)


async def test_leaving_a_request_cancels_it_on_the_other_side():
    cancelled = anyio.Event()

    async def wait(_params: Raw) -> object:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with connected(Scripted(), Scripted(wait=wait)) as (asking, _):
        with pytest.raises(TimeoutError, match=r"'wait' within 0\.05 s"):
            await asking.request_raw("wait", {}, timeout=0.05)
        with anyio.fail_after(20):
            await cancelled.wait()


async def test_a_cancel_request_names_the_id_of_the_request():
    async with wired(Scripted()) as (peer, far):
        with anyio.move_on_after(0.2):
            await peer.request_raw("ask", {})
        asked, cancel = await far.hear(), await far.hear()
    assert (cancel.method, bytes(cancel.id)) == ("$/cancel_request", b"")
    assert msgspec.json.decode(cancel.params) == {"requestId": msgspec.json.decode(asked.id)}


async def test_bad_params_can_be_raised_by_name():
    async def picky(_params: Raw) -> object:
        raise InvalidParams("no such session: 's1'", {"session": "s1"})

    async with connected(Scripted(), Scripted(picky=picky)) as (asking, _):
        with pytest.raises(RpcError, match=r"invalid params: no such session: 's1' \(-32602\)"):
            await asking.request_raw("picky", {})


async def test_pending_requests_fail_when_the_peer_goes():
    async with wired(Scripted()) as (peer, far), anyio.create_task_group() as tasks:

        async def go() -> None:
            await far.hear()
            await far.hang_up()

        tasks.start_soon(go)
        with pytest.raises(ConnectionLost):
            await peer.request_raw("ask", {})
        with pytest.raises(ConnectionLost):
            await peer.request_raw("ask", {})


async def test_nothing_can_be_said_after_hanging_up():
    async with wired(Scripted()) as (peer, far):
        await peer.notify("last", {})
        await peer.aclose()
        assert (await far.hear()).method == "last"
        with pytest.raises(ConnectionLost):
            await peer.notify("later", {})
        with pytest.raises(ConnectionLost):
            await peer.request_raw("later", {})


async def test_hanging_up_does_not_wait_for_handlers():
    async with wired(Scripted(wait=for_ever)) as (peer, far):
        await far.say('{"jsonrpc":"2.0","id":1,"method":"wait"}')
        await far.say('{"jsonrpc":"2.0","id":2,"method":"unknown"}')
        await far.hear()
        with anyio.fail_after(1):
            await peer.aclose()


async def test_requests_read_before_the_end_are_answered_after_it():
    async def slow(_params: Raw) -> object:
        await anyio.sleep(0.05)
        return "late"

    async with wired(Scripted(slow=slow)) as (_, far):
        await far.send.send(b'{"jsonrpc":"2.0","id":1,"method":"slow"}')  # and no newline
        await far.hang_up()
        assert bytes((await far.hear()).result) == b'"late"'
        assert await far.hears_the_end() == b""


async def test_a_peer_that_does_not_listen_any_more_is_still_heard():
    heard = anyio.Event()

    async def tell(_params: Raw) -> object:
        heard.set()

    async with wired(Scripted(tell=tell)) as (peer, far):
        await far.receive.aclose()
        await peer.notify("anything", {})
        await far.say('{"jsonrpc":"2.0","method":"tell"}')
        with anyio.fail_after(20):
            await heard.wait()
        with pytest.raises(ConnectionLost):
            await peer.notify("anything", {})


async def test_a_handler_that_does_not_end_is_ended_some_time_after_the_peer_went(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(rpc_peer, "FINISH_S", 0.1)
    async with wired(Scripted(wait=for_ever, tell=for_ever)) as (_, far):
        await far.say('{"jsonrpc":"2.0","id":1,"method":"wait"}')
        await far.say('{"jsonrpc":"2.0","method":"tell"}')
        await far.hang_up()
        assert await far.hears_the_end() == b""


async def test_a_handler_that_asks_learns_that_the_peer_went():
    async def ask(_params: Raw) -> object:
        try:
            return await peer.request_raw("more", {})
        except ConnectionLost:
            return "alone"

    async with wired(Scripted(ask=ask, tell=ask)) as (peer, far):
        await far.say(
            '{"jsonrpc":"2.0","method":"tell"}', '{"jsonrpc":"2.0","id":1,"method":"ask"}'
        )
        assert {(await far.hear()).method, (await far.hear()).method} == {"more"}
        await far.hang_up()
        assert bytes((await far.hear()).result) == b'"alone"'


async def test_a_peer_that_never_ran_can_be_closed():
    (near_in, far_out), (far_in, near_out) = pipe(), pipe()
    async with far_in, far_out:
        peer = Peer(near_in, near_out, Scripted())
        await peer.notify("early", {})
        await peer.aclose()
        await peer.run()
        assert await Far(far_in, far_out).hears_the_end() == (
            b'{"jsonrpc":"2.0","method":"early","params":{}}\n'
        )
