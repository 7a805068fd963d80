"""Whatever a client sends, and whenever it cancels or leaves: a defined outcome, and a live server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from editor import HELLO, Editor, an_editor, words
from stand_in import StandInAgent

from goent.agent.coding_agent import CodingAgent
from goent.domain.errors import EnvironmentTrouble

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def lives(editor: Editor) -> None:
    """It takes a turn in a new session."""
    session = await editor.session()
    assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


@pytest.mark.spec("A03")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{not json", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 100_000, -32700),
        (b"[1,2,3]", -32600),
        (b"[]", -32600),
        (b'"text"', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"session/new"}', -32600),
        (b'{"jsonrpc":"1.0","method":"session/new"}', -32600),
    ],
    ids=["json", "bytes", "deep", "array", "empty", "text", "nothing", "id", "version"],
)
async def test_what_is_no_message_gets_one_error_with_no_id(line: bytes, code: int):
    async with an_editor() as editor:
        await editor.say(line)
        reply = await editor.hear()
        assert (reply["id"], reply["error"]["code"]) == (None, code)
        await lives(editor)


@pytest.mark.spec("A03")
async def test_a_line_without_end_is_refused_and_the_next_one_served():
    async with an_editor() as editor:
        giant = b'{"jsonrpc":"2.0","id":77,"method":"session/prompt","params":{"x":"%b"}}'
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.say, giant % (b"x" * (65 << 20)))
            assert (await editor.reply(77))["error"]["code"] == -32600
        await lives(editor)


@pytest.mark.spec("A01", "A02")
async def test_ids_may_be_words_and_notifications_get_no_reply():
    async with an_editor() as editor:
        await editor.send("no/such/notice", x=1)
        await editor.send("session/new", cwd="/")
        ask = {"jsonrpc": "2.0", "id": "é-1", "method": "session/list", "params": None}
        await editor.say(ask)
        reply = await editor.hear()
        assert reply["id"] == "é-1" and "result" in reply
        assert await editor.code("no/such/method") == -32601
        assert await editor.code("_goent/secret") == -32601


async def test_nothing_is_served_before_initialize_and_that_comes_once():
    async with an_editor(hello=None) as editor:
        await editor.send("session/cancel", sessionId="s1")
        for method in ("session/new", "session/prompt", "authenticate", "no/such/method"):
            assert await editor.code(method, cwd="/") == -32600
        assert await editor.code("initialize") == -32602
        assert await editor.code("initialize", protocolVersion=1, clientCapabilities=7) == -32602
        await editor.result("initialize", **HELLO)
        assert await editor.code("initialize", **HELLO) == -32600
        assert await editor.code("acp/initialize", **HELLO) == -32600
        await lives(editor)


@pytest.mark.parametrize("session", ["nobody", "", "kept", "\0", "x" * 100_000])
async def test_a_session_that_is_not_open_here_is_not_found(session: str):
    async with an_editor() as editor:
        for method, params in (
            ("session/prompt", {"prompt": words("hi")}),
            ("session/set_mode", {"modeId": "plan"}),
            ("session/set_config_option", {"configId": "mode", "value": "plan"}),
            ("session/close", {}),
        ):
            assert await editor.code(method, sessionId=session, **params) == -32002, method
        await editor.send("session/cancel", sessionId=session)
        await lives(editor)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/prompt", {"sessionId": 7, "prompt": []}),
        ("session/prompt", {}),
        ("session/set_mode", {"sessionId": "s1", "modeId": "rubbish"}),
        ("session/set_mode", {"sessionId": "s1", "modeId": None}),
        ("session/set_mode", {"sessionId": "s1"}),
        ("session/set_config_option", {"sessionId": "s1", "configId": "model", "value": "no/ne"}),
        ("session/set_config_option", {"sessionId": "s1", "configId": "mode", "value": True}),
        ("session/set_config_option", {"sessionId": "s1", "configId": "size", "value": "xl"}),
        ("session/set_config_option", {"sessionId": "s1", "configId": {}, "value": "xl"}),
        ("session/load", {"sessionId": "kept"}),
        ("session/load", {"sessionId": "kept", "cwd": "here"}),
        ("session/load", {"sessionId": ["kept"], "cwd": "/"}),
        ("session/close", {"sessionId": None}),
        ("session/delete", {}),
        ("authenticate", {"methodId": 1}),
    ],
)
async def test_parameters_of_the_wrong_kind_are_refused(method: str, params: dict[str, object]):
    async with an_editor() as editor:
        session = await editor.session()
        assert await editor.code(method, **params) == -32602
        await editor.say({"jsonrpc": "2.0", "id": 900, "method": method, "params": [1]})
        assert (await editor.reply(900))["error"]["code"] == -32602
        assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


async def test_a_prompt_during_a_prompt_is_refused_and_the_first_goes_on():
    async with an_editor() as editor:
        session = await editor.session()
        first = await editor.begin("session/prompt", sessionId=session, prompt=words("wait"))
        assert await editor.code("session/prompt", sessionId=session, prompt=words("no")) == -32602
        assert await editor.code("session/load", sessionId=session, cwd="/") == -32602
        assert len(editor.agent.sessions[session].given) == 1
        await editor.send("session/cancel", sessionId=session)
        assert (await editor.reply(first))["result"]["stopReason"] == "cancelled"


@pytest.mark.spec("A08")
async def test_a_turn_can_be_cancelled_at_every_moment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "goent.acp_server.client_sessions.CANCEL_GRACE_S", 1000.0
    )  # each ends by itself
    async with an_editor() as editor:
        session = await editor.session()
        await editor.send("session/cancel", sessionId=session)  # before any
        prompt = {"sessionId": session, "prompt": words("wait")}
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}
        # In one write: the session has not heard of its turn when it is cancelled.
        await editor.say(
            {"jsonrpc": "2.0", "id": 800, "method": "session/prompt", "params": prompt}, cancel
        )
        assert (await editor.reply(800))["result"]["stopReason"] == "cancelled"

        number = await editor.begin("session/prompt", **prompt)
        await editor.until_update("agent_message_chunk")
        await editor.say(cancel, cancel)  # twice
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"
        assert "waiting" in editor.text()

        prompt["prompt"] = words("wait in vain")  # what fails because it is cancelled
        number = await editor.begin("session/prompt", **prompt)
        await editor.until_update("agent_message_chunk")
        await editor.say(cancel)
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"

        await editor.say(cancel)  # after
        assert (await editor.prompt(session, "say 2"))["stopReason"] == "end_turn"


@pytest.mark.spec("A08", "A09")
async def test_a_turn_can_be_cancelled_while_it_asks():
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words("ask"))
        asked = await editor.until("session/request_permission")
        await editor.send("session/cancel", sessionId=session)
        withdrawn = await editor.until("$/cancel_request")
        assert withdrawn["params"] == {"requestId": asked["id"]}
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"
        await editor.answer(asked["id"], {"outcome": {"outcome": "cancelled"}})  # as it must
        assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


@pytest.mark.spec("A08")
@pytest.mark.parametrize("text", ["wait", "ask"])
async def test_a_prompt_whose_request_is_cancelled_ends_as_a_cancelled_turn(text: str):
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words(text))
        await editor.until_update("agent_message_chunk" if text == "wait" else "tool_call")
        await editor.send("$/cancel_request", requestId=number)
        await editor.send("$/cancel_request", requestId=number)
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"
        await editor.send("$/cancel_request", requestId=number)
        assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("by", ["session/cancel", "$/cancel_request", "session/close"])
async def test_a_turn_that_does_not_end_when_cancelled_is_torn_down(
    monkeypatch: pytest.MonkeyPatch, by: str
):
    monkeypatch.setattr("goent.acp_server.client_sessions.CANCEL_GRACE_S", 0.1)
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words("wait"))
        await editor.until_update("agent_message_chunk")
        editor.agent.sessions[session].deaf = True
        if by == "session/close":
            await editor.begin("session/close", sessionId=session)
        elif by == "session/cancel":
            await editor.send(by, sessionId=session)
        else:
            await editor.send(by, requestId=number)
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"
        await lives(editor)


async def test_a_session_that_is_closed_in_a_turn_ends_it_first():
    async with an_editor() as editor:
        session = await editor.session()
        turn = await editor.begin("session/prompt", sessionId=session, prompt=words("wait"))
        await editor.until_update("agent_message_chunk")
        one = await editor.begin("session/close", sessionId=session)
        two = await editor.begin("session/close", sessionId=session)
        replies = {line["id"]: line for line in [await editor.hear() for _ in range(3)]}
        assert replies[turn]["result"]["stopReason"] == "cancelled"
        assert replies[one]["result"] == {}
        assert replies[two]["error"]["code"] == -32002
        assert not editor.agent.sessions
        await lives(editor)


async def test_making_a_session_can_be_cancelled():
    agent = StandInAgent()
    agent.gate = anyio.Event()
    async with an_editor(agent) as editor:
        number = await editor.begin("session/new", cwd="/")
        await agent.at_gate.wait()
        await editor.send("$/cancel_request", requestId=number)
        assert (await editor.reply(number))["error"]["code"] == -32800
        agent.gate = None
        await lives(editor)
        told = {line["params"]["sessionId"] for line in editor.heard if "params" in line}
        assert told == {"s2"}, "nobody knows of the first one"


async def test_a_history_that_is_not_wanted_any_more_is_not_told_to_its_end():
    async with an_editor() as editor:
        number = await editor.begin("session/load", sessionId="long", cwd="/")
        await editor.until_update("agent_message_chunk")
        standing_in = editor.agent.sessions["long"]
        await editor.send("$/cancel_request", requestId=number)
        assert (await editor.reply(number))["error"]["code"] == -32800
        assert len(editor.heard) < 50_000
        assert standing_in.closed
        assert await editor.code("session/prompt", sessionId="long", prompt=words("hi")) == -32002
        await lives(editor)


async def test_half_characters_do_not_cost_the_line():
    async with an_editor() as editor:
        session = await editor.session()
        assert (await editor.prompt(session, "half"))["stopReason"] == "end_turn"
        assert editor.text() == "caf\ufffd"
        (call,) = editor.updates("tool_call")
        assert call["rawInput"] == {"path": "\ufffd"}
        assert "\ufffd" in call["content"][1]["content"]["text"]


async def test_a_turn_that_fails_says_what_of_and_whether_to_try_again():
    async with an_editor() as editor:
        session = await editor.session()
        ask = {"sessionId": session, "prompt": words("fail")}
        error = (await editor.ask("session/prompt", **ask))["error"]
        assert error["code"] == -32603
        assert error["data"] == {
            "kind": "rate_limited",
            "retryable": True,
            "message": "a is out of breath",
        }
        assert editor.text() == "part"
        ask["prompt"] = words("bug")
        error = (await editor.ask("session/prompt", **ask))["error"]
        assert (error["code"], error["message"]) == (-32603, "internal error: RuntimeError")
        assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


@pytest.mark.parametrize("text", ["wait", "ask", "say 300000"])
async def test_a_client_that_vanishes_in_a_turn_takes_the_agent_with_it(text: str):
    async with an_editor() as editor:
        session = await editor.session()
        await editor.begin("session/prompt", sessionId=session, prompt=words(text))
        await editor.until_update("tool_call" if text == "ask" else "agent_message_chunk")
        standing_in = editor.agent.sessions[session]
        await editor.vanish()
    assert editor.agent.ended
    assert not standing_in.busy


async def test_a_client_that_hangs_up_first_gets_the_replies_it_asked_for():
    async with an_editor(hello=None) as editor:
        first = await editor.begin("initialize", **HELLO)
        second = await editor.begin("session/new", cwd="/")
        third = await editor.begin("session/prompt", sessionId="s1", prompt=words("say 3"))
        await editor.hang_up()
        await editor.hears_the_end()
    replies = {line["id"]: line for line in editor.heard if "id" in line}
    assert replies[first]["result"]["protocolVersion"] == 1
    assert replies[second]["result"]["sessionId"] == "s1"
    assert replies[third]["error"]["code"] == -32002, "sent before the session was there"


class Locked(StandInAgent):
    """Cannot be opened the first time; what is wrong comes out of a task group."""

    @asynccontextmanager
    async def open_agent(self) -> AsyncGenerator[CodingAgent]:
        async with anyio.create_task_group(), super().open_agent() as agent:
            if self.opened == 1:
                raise EnvironmentTrouble("the ledger is locked: end who holds it")
            yield agent


async def test_an_agent_that_does_not_open_is_told_and_tried_again():
    async with an_editor(Locked()) as editor:
        one, two = await editor.begin("session/new", cwd="/"), await editor.begin("session/list")
        for number in (one, two):
            error = (await editor.reply(number))["error"]
            assert error["code"] == -32603
            assert error["data"] == {
                "kind": "EnvironmentTrouble",
                "retryable": False,
                "message": "the ledger is locked: end who holds it",
            }
        await lives(editor)
