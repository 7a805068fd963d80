"""The older dialect: the same agent behind other words."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from acp_lines import Line
from editor import Editor, an_editor, words

from goent.acp_server import legacy_protocol

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@asynccontextmanager
async def a_client() -> AsyncGenerator[Editor]:
    async with an_editor(hello=None) as editor:
        await editor.result("acp/initialize", protocolVersion=1, capabilities={})
        yield editor


async def created(client: Editor, **params: Any) -> str:
    session: str = (await client.result("session/create", cwd="/", **params))["sessionId"]
    return session


@pytest.mark.spec("A04")
async def test_it_opens_with_words_of_its_own():
    async with an_editor(hello=None) as client:
        said = await client.result("acp/initialize", protocolVersion=1, capabilities={"x": 1})
        assert said["protocolVersion"] == 1
        assert said["agentInfo"]["version"] == "1.2.3"
        assert said["capabilities"]["loadSession"]
        assert client.agent.opened == 0
        assert await client.code("initialize", protocolVersion=1) == -32600


@pytest.mark.spec("A05")
@pytest.mark.parametrize("asked", [{"protocolVersion": 2}, {"protocolVersion": "1"}, {}])
async def test_another_version_is_an_error_and_so_is_all_that_follows(asked: Line):
    async with an_editor(hello=None) as client:
        error = (await client.ask("acp/initialize", **asked))["error"]
        assert (error["code"], error["data"]) == (-32602, {"supportedVersions": [1]})
        for method in ("session/create", "session/prompt", "session/new", "initialize"):
            error = (await client.ask(method, cwd="/"))["error"]
            assert error["code"] == -32600, method
        await client.send("session/cancel", sessionId="s1")
        assert client.agent.opened == 0


@pytest.mark.spec("A06", "A07", "A12")
@pytest.mark.parametrize("prompt", ["say 3", words("say 3")], ids=["string", "blocks"])
async def test_a_turn_is_streamed_and_told_whole_at_its_end(prompt: Any):
    async with a_client() as client:
        session = await created(client, model="b/two")
        assert client.agent.sessions[session].options.model == "b/two"
        end = await client.result("session/prompt", sessionId=session, prompt=prompt)
    assert end == {
        "stopReason": "end_turn",
        "output": "0 1 2 ",
        "usage": {
            "inputTokens": 10,
            "outputTokens": 5,
            "totalTokens": 18,
            "thoughtTokens": 0,
            "cachedReadTokens": 3,
            "cachedWriteTokens": 0,
        },
        "costUsd": 0.25,
    }
    said = [line["params"] for line in client.heard if line.get("method") == "session/output"]
    assert said == [
        {"sessionId": session, "content": {"type": "text", "text": f"{place} "}}
        for place in range(3)
    ]


@pytest.mark.spec("A11")
async def test_progress_has_a_step_and_the_share_of_the_plan():
    async with a_client() as client:
        session = await created(client)
        await client.result("session/prompt", sessionId=session, prompt="tools")
    told = [line["params"] for line in client.heard if line.get("method") == "session/progress"]
    assert {frozenset(params) for params in told} == {
        frozenset({"sessionId", "step", "percent", "message"})
    }
    assert [(params["step"], params["percent"], params["message"]) for params in told] == [
        ("notice", None, "about to begin"),
        ("running", None, "the turn has started"),
        ("change", 50, "1 of 2 done"),
        ("Edit", 50, "Edit a.py: pending"),
        ("Edit", 50, "Edit a.py: running"),
        ("Edit", 50, "Edit a.py: completed"),
        ("notice", 50, "another model was asked"),
        ("idle", 50, "done"),
    ]


@pytest.mark.spec("A11")
@pytest.mark.parametrize(
    ("prompt", "step", "percent", "message"),
    [
        ("wait", "running", None, "the model is working, for 0 s"),
        ("run and wait", "Edit", None, "Edit a.py: running for 0 s"),
        ("plan and wait", "finishing", 100, "the model is working, for 0 s"),
    ],
)
async def test_progress_is_told_again_while_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
    prompt: str,
    step: str,
    percent: int | None,
    message: str,
):
    monkeypatch.setattr(legacy_protocol, "HEARTBEAT_S", 0.01)
    async with a_client() as client:
        session = await created(client)
        await client.begin("session/prompt", sessionId=session, prompt=prompt)
        for _ in range(2):
            told = {"message": ""}
            while not told["message"].startswith(message.removesuffix("0 s")):
                told = (await client.until("session/progress"))["params"]
            assert (told["step"], told["percent"]) == (step, percent)
        await client.ask("session/cancel", sessionId=session)


@pytest.mark.spec("A11")
async def test_a_whole_plan_is_finishing_and_the_next_turn_begins_anew():
    async with a_client() as client:
        session = await created(client)
        await client.begin("session/prompt", sessionId=session, prompt="plan and wait")
        steps = list[tuple[str, int | None]]()
        while ("finishing", 100) not in steps:
            told = (await client.until("session/progress"))["params"]
            steps.append((told["step"], told["percent"]))
        assert ("running", None) in steps


async def asking(client: Editor) -> tuple[str, int, Line]:
    session = await created(client)
    number = await client.begin("session/prompt", sessionId=session, prompt="ask")
    return session, number, (await client.until("permission/request"))["params"]


@pytest.mark.spec("A09", "A10")
@pytest.mark.parametrize(
    ("outcome", "heard"),
    [
        ("allow", "allow_once"),
        ("allow_always", "allow_always"),
        ("deny", "reject"),
        ("perhaps", "reject"),
    ],
)
async def test_a_permission_is_a_pair_of_notifications(outcome: str, heard: str):
    async with a_client() as client:
        session, number, question = await asking(client)
        assert question == {
            "sessionId": session,
            "requestId": question["requestId"],
            "tool": "Edit",
            "input": {"path": "/x/a.py"},
            "options": ["allow", "allow_always", "deny"],
        }
        await client.send("permission/response", requestId="nobody's", outcome="allow")
        await client.send("permission/response", requestId=7, outcome="allow")
        await client.send("permission/response", requestId=question["requestId"], outcome=outcome)
        await client.send("permission/response", requestId=question["requestId"], outcome="allow")
        assert (await client.reply(number))["result"]["output"] == heard


@pytest.mark.spec("A08", "A12")
@pytest.mark.parametrize("as_request", [True, False], ids=["request", "notification"])
async def test_a_cancelled_session_says_what_it_had_and_takes_no_more(as_request: bool):
    async with a_client() as client:
        session = await created(client)
        turn = await client.begin("session/prompt", sessionId=session, prompt="wait")
        await client.until("session/output")
        standing_in = client.agent.sessions[session]
        number = -1
        if as_request:
            number = await client.begin("session/cancel", sessionId=session)
        else:
            await client.send("session/cancel", sessionId=session)
            await client.send("session/cancel", sessionId=session)
        end = (await client.reply(turn))["result"]
        assert (end["stopReason"], end["output"]) == ("cancelled", "waiting")
        cancelled = {"sessionId": session, "status": "cancelled", "output": "waiting"}
        if as_request:
            assert (await client.reply(number))["result"] == cancelled
        assert await client.result("session/cancel", sessionId=session) == cancelled
        assert standing_in.closed
        error = (await client.ask("session/prompt", sessionId=session, prompt="more"))["error"]
        assert error["code"] == -32602
        assert "was cancelled" in error["message"]
        end = await client.result("session/prompt", sessionId=await created(client), prompt="say 1")
        assert end["stopReason"] == "end_turn"


@pytest.mark.spec("A08")
async def test_a_session_can_be_cancelled_before_and_after_a_turn_and_while_it_asks():
    async with a_client() as client:
        idle = await created(client)
        assert (await client.result("session/cancel", sessionId=idle))["output"] == ""
        done = await created(client)
        await client.result("session/prompt", sessionId=done, prompt="say 1")
        assert (await client.result("session/cancel", sessionId=done))["output"] == "0 "
        session, number, question = await asking(client)
        await client.send("session/cancel", sessionId=session)
        assert (await client.reply(number))["result"]["stopReason"] == "cancelled"
        await client.send("permission/response", requestId=question["requestId"], outcome="allow")
        assert await client.code("session/cancel", sessionId="nobody") == -32002
        await client.send("session/cancel", sessionId="nobody")
        await client.send("session/cancel", sessionId=7)
        assert await created(client)


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("session/create", {}, -32602),
        ("session/create", {"cwd": "here"}, -32602),
        ("session/create", {"cwd": "/", "model": "no/ne"}, -32602),
        ("session/create", {"cwd": "/", "model": 7}, -32602),
        ("session/prompt", {"sessionId": "nobody", "prompt": "hi"}, -32002),
        ("session/prompt", {"sessionId": "s1", "prompt": 7}, -32602),
        ("session/prompt", {"sessionId": "s1", "prompt": {}}, -32602),
        ("session/prompt", {"sessionId": "s1", "prompt": [{"type": "audio"}]}, -32602),
        ("session/prompt", {"sessionId": "s1"}, -32602),
        ("session/prompt", {"sessionId": "s1", "prompt": "fail"}, -32603),
        ("session/new", {"cwd": "/"}, -32601),
        ("session/load", {"cwd": "/"}, -32601),
    ],
)
async def test_what_it_cannot_take_is_refused(method: str, params: Line, code: int):
    async with a_client() as client:
        session = await created(client)
        assert await client.code(method, **params) == code
        end = await client.result("session/prompt", sessionId=session, prompt="say 1")
        assert end["stopReason"] == "end_turn"


async def test_a_prompt_during_a_prompt_is_refused():
    async with a_client() as client:
        session = await created(client)
        first = await client.begin("session/prompt", sessionId=session, prompt="wait")
        assert await client.code("session/prompt", sessionId=session, prompt="no") == -32602
        await client.result("session/cancel", sessionId=session)
        assert client.heard[-2]["id"] == first
