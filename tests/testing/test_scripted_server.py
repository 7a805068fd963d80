"""The server itself: HTTP by hand, the barriers, the gates."""

import anyio
import httpx2
import pytest
from vendor_talk import ask, ask_claude, chunks, post, trouble

from goent.domain.types import Usage
from goent.testing import scripted_calls
from goent.testing.script import Script, anthropic, case, openai, say
from goent.testing.scripted_server import ScriptedModels

pytestmark = pytest.mark.anyio

SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("gated", say("through").having(gate="door")), case(None, say("hi"))
        ),
        "claude": anthropic(case(None, say("salut", usage=Usage(input=7, output=3)))),
    }
)
BODY = b'{"model":"glm-4","messages":[{"role":"user","content":"x"}]}'
HEAD = b"POST /moonshot/v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


async def exchange(server: ScriptedModels, *sent: bytes) -> bytes:
    """Say all this, and hear everything until the server closes."""
    heard = b""
    port = int(server.url.rpartition(":")[2])
    with anyio.fail_after(20):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            for part in sent:
                await stream.send(part)
                await anyio.lowlevel.checkpoint()
            async for data in stream:
                heard += data
    return heard


async def test_one_connection_carries_many_requests() -> None:
    length = b"content-length: %d\r\n" % len(BODY)
    async with ScriptedModels(SCRIPT) as server:
        heard = await exchange(
            server,
            HEAD + length + b"\r\n" + BODY,
            HEAD + length + b"connection: close\r\n\r\n" + BODY,
        )
        assert len(server.calls) == 2
    assert heard.count(b"HTTP/1.1 200 OK\r\n") == 2


async def test_a_body_may_come_in_chunks() -> None:
    chunked = b"transfer-encoding: chunked\r\nconnection: close\r\nexpect: 100-continue\r\n\r\n"
    parts = [b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:])]
    async with ScriptedModels(SCRIPT) as server:
        heard = await exchange(server, HEAD + chunked, *parts, b"0\r\ntrailer: 1\r\n\r\n")
    assert heard.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b'"content":"hi"' in heard


@pytest.mark.parametrize(
    ("nonsense", "complaint"),
    [
        (b"hello\r\n\r\n", b"illegal request line"),
        (HEAD + b"content-length: -4\r\n\r\n", b"bad Content-Length"),
        (HEAD + b"content-length: 99999999999\r\n\r\n", b"longer than"),
        (b"x" * 70_000, b"Receive buffer too long"),
    ],
)
async def test_what_is_not_http_is_told_so(nonsense: bytes, complaint: bytes) -> None:
    async with ScriptedModels(SCRIPT) as server:
        heard = await exchange(server, nonsense)
        assert not server.calls
    assert heard.startswith(b"HTTP/1.1 400 Bad Request") and complaint in heard


async def test_an_address_that_is_not_served_names_those_that_are() -> None:
    async with ScriptedModels(SCRIPT) as server:
        heard = await exchange(
            server, b"GET /nobody/v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        with pytest.raises(KeyError, match="'nobody' is not in the script"):
            server.base_url("nobody")
    assert heard.startswith(b"HTTP/1.1 404")
    assert b"POST /claude/v1/messages" in heard


async def test_calls_remember_who_asked_and_the_bill_can_be_split() -> None:
    headers = {"x-session-id": "ses_child", "x-parent-session-id": "ses_mother", "x-api-key": "k"}
    async with ScriptedModels(SCRIPT) as server:
        await post(server, "claude", ask_claude("x"), headers=headers)
        await post(server, "moonshot", ask("x"))
        first, second = server.calls
        assert server.billed("claude") == Usage(input=7, output=3)
        assert server.billed("moonshot") == Usage(input=100, output=20)
        assert server.billed() == Usage(input=107, output=23)
    assert (first.session, first.parent, first.key) == ("ses_child", "ses_mother", "k")
    assert (first.provider, first.path, first.model) == (
        "claude",
        "/claude/v1/messages",
        "claude-x",
    )
    assert (second.session, second.status, second.disconnected) == (None, 200, False)


async def test_a_gate_holds_requests_until_the_test_opens_it() -> None:
    texts: list[str] = []

    async def one(server: ScriptedModels) -> None:
        texts.append((await post(server, "moonshot", ask("gated"))).text)

    async with ScriptedModels(SCRIPT) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(one, server)
        tasks.start_soon(one, server)
        await server.at_gate("door", 2)
        assert not texts and all(call.ended is None for call in server.calls)
        server.open_gate("door")
        await server.wait_for(lambda call: call.n == 2 and call.ended is not None)
    assert [chunks(text)[1].choices[0].delta.content for text in texts] == ["through"] * 2


async def test_a_gate_that_nobody_opens_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_calls, "GATE_S", 0.05)
    async with ScriptedModels(SCRIPT) as server:
        response = await post(server, "moonshot", ask("gated"))
    assert response.status_code == 400 and "the gate 'door'" in trouble(response).message


async def test_a_barrier_that_is_not_reached_tells_what_was_seen() -> None:
    async with ScriptedModels(SCRIPT) as server:
        await post(server, "moonshot", ask("x"))
        assert len(await server.called(1)) == 1
        with pytest.raises(
            TimeoutError, match=r"not 2 calls within 0.05 s; seen: #1 moonshot/glm-4 case None"
        ):
            await server.called(2, timeout=0.05)


async def test_leaving_the_context_ends_what_is_under_way() -> None:
    async def abandoned(server: ScriptedModels) -> None:
        with pytest.raises(httpx2.TransportError):
            await post(server, "moonshot", ask("gated"))

    async with anyio.create_task_group() as tasks:
        async with ScriptedModels(SCRIPT) as server:
            port = int(server.url.rpartition(":")[2])
            tasks.start_soon(abandoned, server)
            await server.at_gate("door")
        with pytest.raises(OSError, match=r"refused|failed"):
            await anyio.connect_tcp("127.0.0.1", port)


async def test_the_bodys_error_leaves_the_context_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with ScriptedModels(SCRIPT):
            _ = 1 / 0


async def test_a_cancelled_body_leaves_the_context_at_once() -> None:
    with anyio.move_on_after(0.05) as scope:
        async with ScriptedModels(SCRIPT) as server:
            await post(server, "moonshot", ask("gated"))
    assert scope.cancelled_caught


def test_there_is_no_address_before_the_context() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = ScriptedModels(SCRIPT).url
