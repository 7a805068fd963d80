"""Everything that can be made to go wrong with a model, and what is billed then."""

import httpx2
import pytest
from vendor_talk import ask, ask_claude, chunks, events, post, trouble

from goent.domain.types import Usage
from goent.testing.script import (
    Case,
    Fault,
    FaultKind,
    Script,
    Step,
    anthropic,
    case,
    fail,
    openai,
    say,
)
from goent.testing.scripted_server import ScriptedModels

pytestmark = pytest.mark.anyio

STORY = Step(say="one two three four five six ", chunk=4, usage=Usage(input=100, output=70))


def broken(kind: FaultKind, after: int | None = None) -> Script:
    step = STORY.having(fault=Fault(kind=kind, after=after))
    return Script(providers={"a": openai(case(None, step)), "claude": anthropic(case(None, step))})


async def test_a_status_strikes_as_often_as_the_script_says_per_session() -> None:
    fault = Fault(status=429, retry_after=1, times=2, message="slow down")
    script = Script(providers={"a": openai(case("storm", Step(say="at last", fault=fault)))})
    one, two = {"x-session-id": "ses_1"}, {"x-session-id": "ses_2"}
    async with ScriptedModels(script) as server:
        replies = [await post(server, "a", ask("storm"), headers=one) for _ in range(3)]
        other = await post(server, "a", ask("storm"), headers=two)
        assert server.billed(session="ses_1") == Usage(input=100, output=20)
        assert server.billed(session="ses_2") == Usage()
    assert [reply.status_code for reply in replies] == [429, 429, 200]
    assert other.status_code == 429 and other.headers["retry-after"] == "1"
    assert trouble(other).message == "slow down"
    assert trouble(other).code == "rate_limit_exceeded"


async def test_a_cut_stream_ends_in_a_reset_after_so_many_pieces() -> None:
    received = bytearray()

    async def read(url: str) -> None:
        connection = httpx2.AsyncClient()
        async with connection as client, client.stream("POST", url, json=ask("x")) as response:
            async for data in response.aiter_raw():
                received.extend(data)

    async with ScriptedModels(broken("cut", after=3)) as server:
        with pytest.raises(httpx2.ReadError):
            await read(f"{server.base_url('a')}/chat/completions")
        (seen,) = server.calls
    role, *said = [line for line in received.decode().split("\n\n") if '"content":"' in line]
    assert '"role":"assistant"' in role
    assert len(said) == 3 and "[DONE]" not in received.decode()
    assert (seen.pieces, seen.status, seen.fault) == (3, 200, "cut")
    assert seen.usage == Usage(input=100, output=30)  # the prompt, and 3 of 7 pieces of 70


@pytest.mark.parametrize("provider", ["a", "claude"])
async def test_a_stream_may_end_cleanly_without_a_finish(provider: str) -> None:
    async with ScriptedModels(broken("eof", after=99)) as server:
        body = ask("x") if provider == "a" else ask_claude("x")
        text = (await post(server, provider, body)).text
        assert server.billed() == Usage(input=100, output=70)
    assert "six" in text
    assert "[DONE]" not in text and "message_delta" not in text and '"finish_reason":"' not in text


@pytest.mark.parametrize("kind", ["cut", "eof"])
async def test_a_connection_may_end_before_the_headers(kind: FaultKind) -> None:
    async with ScriptedModels(broken(kind)) as server:
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            await post(server, "a", ask("x"))
        (seen,) = server.calls
    assert (seen.status, seen.usage) == (None, Usage())


@pytest.mark.parametrize(("after", "billed"), [(None, Usage()), (2, Usage(input=100, output=20))])
async def test_a_hang_lasts_until_the_client_goes(after: int | None, billed: Usage) -> None:
    script = Script(
        providers={"a": openai(case(None, STORY.having(fault=Fault(kind="hang", after=after))))}
    )
    timeout = httpx2.Timeout(10, read=0.5)
    async with ScriptedModels(script) as server, httpx2.AsyncClient(timeout=timeout) as client:
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(f"{server.base_url('a')}/chat/completions", json=ask("x"))
        seen = await server.wait_for(lambda call: call.disconnected)
    assert seen.ended is not None and seen.ended > seen.started
    assert seen.usage == billed


async def test_a_client_that_leaves_is_billed_for_what_was_sent() -> None:
    script = Script(
        providers={"a": openai(case(None, STORY.having(fault=Fault(kind="hang", after=5))))}
    )
    async with ScriptedModels(script) as server, httpx2.AsyncClient() as client:
        url = f"{server.base_url('a')}/chat/completions"
        async with client.stream("POST", url, json=ask("x")) as response:
            await server.wait_for(lambda call: call.pieces == 5)
            assert response.status_code == 200
        await server.wait_for(lambda call: call.disconnected)
        assert server.billed("a") == Usage(input=100, output=50)


@pytest.mark.parametrize(
    ("provider", "error"), [("a", '{"error":{"message":"scripted'), ("claude", "event: error\n")]
)
async def test_an_error_may_come_inside_the_stream(provider: str, error: str) -> None:
    async with ScriptedModels(broken("error", after=1)) as server:
        body = ask("x") if provider == "a" else ask_claude("x")
        response = await post(server, provider, body)
    assert response.status_code == 200
    assert error in response.text.split("\n\n", 1)[1] and "two" not in response.text


async def test_a_stream_may_hold_broken_json() -> None:
    async with ScriptedModels(broken("malformed", after=1)) as server:
        *_, last = events((await post(server, "a", ask("x"))).text)
    with pytest.raises(ValueError, match="truncated"):
        last.json()


@pytest.mark.parametrize("stream", [True, False])
async def test_garbage_is_a_web_page_with_status_200(stream: bool) -> None:
    async with ScriptedModels(broken("garbage")) as server:
        response = await post(server, "a", ask("x", stream=stream))
        assert server.billed() == Usage()
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html")
    assert response.text.startswith("<!doctype html>")


async def test_a_mislabeled_stream_is_whole() -> None:
    async with ScriptedModels(broken("mislabeled")) as server:
        response = await post(server, "a", ask("x"))
    assert response.headers["content-type"] == "text/html"
    assert chunks(response.text)[-2].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("kind", ["cut", "eof"])
async def test_a_plain_reply_breaks_in_its_middle(kind: FaultKind) -> None:
    async with ScriptedModels(broken(kind, after=1)) as server:
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            await post(server, "a", ask("x", stream=False))


async def test_a_plain_reply_may_be_half_a_document_or_an_error() -> None:
    async with ScriptedModels(broken("malformed")) as server:
        half = await post(server, "a", ask("x", stream=False))
    async with ScriptedModels(broken("error")) as server:
        error = await post(server, "a", ask("x", stream=False))
    assert half.status_code == 200 and half.text.startswith('{"id":"chatcmpl-1"')
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        half.json()
    assert error.status_code == 500


async def test_a_step_that_repeats_never_runs_out() -> None:
    forever = Case(steps=(say("first"), say("again")), repeat=True)
    script = Script(providers={"a": openai(forever)})
    history: list[object] = [{"role": "user", "content": "go"}]
    async with ScriptedModels(script) as server:
        for _ in range(4):
            await post(server, "a", ask("", messages=history))
            history.append({"role": "assistant", "content": "x", "tool_calls": []})
            history.append({"role": "tool", "content": "ok", "tool_call_id": "1"})
        assert [call.step for call in server.calls] == [0, 1, 1, 1]


async def test_fail_builds_faulty_steps() -> None:
    assert fail(429, times=2).fault == Fault(status=429, times=2)
    assert fail("cut", after=3).fault == Fault(kind="cut", after=3)
