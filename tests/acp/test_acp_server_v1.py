"""The server side of the protocol's first version, over pipes, with a stand-in for the agent."""

from pathlib import Path

import pytest
from editor import HELLO, an_editor, is_update, words
from stand_in import StandInAgent

from goent.agent.agent_events import FilePart, ImagePart, LinkPart, TextPart

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.spec("A04")
async def test_it_says_who_it_is_and_what_it_can_without_opening_anything():
    async with an_editor(hello=None) as editor:
        said = await editor.result("initialize", **HELLO)
        assert editor.agent.opened == 0
    assert said["protocolVersion"] == 1
    assert said["agentInfo"] == {"name": "go-ent", "title": "go-ent", "version": "1.2.3"}
    assert said["agentCapabilities"] == {
        "loadSession": True,
        "promptCapabilities": {"image": True, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": False},
        "sessionCapabilities": {
            "close": {},
            "delete": {},
            "list": {},
            "resume": {},
            "additionalDirectories": {},
        },
    }
    assert [method["type"] for method in said["authMethods"]] == ["agent"]


@pytest.mark.spec("A05")
@pytest.mark.parametrize("version", [0, 2, 99, -1, "1.0", None, {}])
async def test_an_unknown_version_gets_ours_as_a_result(version: object):
    async with an_editor(hello=None) as editor:
        assert (await editor.result("initialize", protocolVersion=version))["protocolVersion"] == 1
        assert await editor.session() == "s1"


async def test_a_way_to_log_in_by_terminal_is_offered_to_those_who_have_one():
    hello = {"protocolVersion": 1, "clientCapabilities": {"auth": {"terminal": True}}}
    async with an_editor(hello=None) as editor:
        keys, setup = (await editor.result("initialize", **hello))["authMethods"]
    assert (keys["type"], setup["type"], setup["args"]) == ("agent", "terminal", ["--login"])


async def test_logging_in_is_done_if_there_is_a_key_and_else_says_how_to_get_one():
    agent = StandInAgent()
    async with an_editor(agent) as editor:
        assert await editor.result("authenticate", methodId="go-ent-keys") == {}
        assert await editor.code("authenticate", methodId="guess") == -32602
        agent.keyless = True
        for method, params in (
            ("authenticate", {"methodId": "go-ent-keys"}),
            ("session/new", {"cwd": "/"}),
        ):
            error = (await editor.ask(method, **params))["error"]
            assert error["code"] == -32000
            assert "go-ent init" in error["message"]
        agent.keyless = False
        assert await editor.session()


@pytest.mark.spec("A06")
async def test_a_session_is_named_before_it_says_anything(tmp_path: Path):
    async with an_editor() as editor:
        reply = await editor.result("session/new", cwd=str(tmp_path))
        assert not [line for line in editor.heard if is_update(line)]
        await editor.until_update("usage_update")
    kinds = [line["params"]["update"]["sessionUpdate"] for line in editor.heard if is_update(line)]
    assert kinds == ["agent_thought_chunk", "available_commands_update", "usage_update"]
    assert reply["sessionId"] == "s1"
    assert [option["id"] for option in reply["configOptions"]] == ["model", "mode"]
    model, mode = reply["configOptions"]
    assert (model["type"], model["category"], model["currentValue"]) == ("select", "model", "a/one")
    assert [group["options"][0]["value"] for group in model["options"]] == [
        "auto",
        "a/one",
        "b/two",
    ]
    assert [choice["value"] for choice in mode["options"]] == ["ask", "accept-edits", "plan"]
    assert reply["modes"]["currentModeId"] == "ask"
    assert [mode["id"] for mode in reply["modes"]["availableModes"]] == [
        "ask",
        "accept-edits",
        "plan",
    ]
    (commands,) = editor.updates("available_commands_update")
    assert {"compact", "model", "mode", "cost"} <= {
        command["name"] for command in commands["availableCommands"]
    }


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"cwd": "relative"}, "not absolute"),
        ({"cwd": "/no/such/place"}, "not a directory"),
        ({"cwd": "/a\0b"}, "/a"),
        ({"cwd": "/" + "x" * 5000}, "xxx"),
        ({"cwd": 5}, "cwd"),
        ({}, "cwd"),
        ({"cwd": "/", "additionalDirectories": ["no"]}, "additionalDirectories"),
        ({"cwd": "/", "mcpServers": [{"name": "x"}]}, "mcpServers[0]"),
        ({"cwd": "/", "mcpServers": [7]}, "mcpServers[0]"),
        ({"cwd": "/", "mcpServers": [{"type": "sse", "name": "x", "url": "u"}]}, "'sse'"),
    ],
)
async def test_a_session_somewhere_impossible_is_refused(params: dict[str, object], words: str):
    async with an_editor() as editor:
        error = (await editor.ask("session/new", **params))["error"]
        assert error["code"] == -32602
        assert words in error["message"]
        assert await editor.session() == "s1"


async def test_directories_and_servers_reach_the_agent(tmp_path: Path):
    servers = [
        {"name": "a", "command": "/bin/a", "args": ["-x"], "env": [{"name": "K", "value": "v"}]},
        {
            "type": "http",
            "name": "b",
            "url": "http://b/mcp",
            "headers": [{"name": "H", "value": "1"}],
        },
    ]
    async with an_editor() as editor:
        await editor.result(
            "session/new", cwd="/", mcpServers=servers, additionalDirectories=[str(tmp_path)]
        )
        a, b = editor.agent.servers[0]
        assert (a.command, a.arguments, dict(a.environ)) == ("/bin/a", ("-x",), {"K": "v"})
        assert (b.url, dict(b.headers)) == ("http://b/mcp", {"H": "1"})
        assert editor.agent.extra[0] == (tmp_path,)


@pytest.mark.spec("A07", "A11", "A12")
async def test_all_that_is_said_comes_before_the_reply():
    async with an_editor() as editor:
        session = await editor.session()
        end = await editor.prompt(session, "say 5000")
        assert editor.heard[-1]["result"] == end
    assert end["stopReason"] == "end_turn"
    assert end["usage"]["totalTokens"] == 18
    assert end["_meta"] == {"go-ent": {"costUsd": 0.25}}
    assert editor.text() == "".join(f"{number} " for number in range(5000))
    assert {part["messageId"] for part in editor.updates("agent_message_chunk")} == {"m1"}


@pytest.mark.spec("A11")
async def test_tools_plans_and_notices_are_told():
    async with an_editor() as editor:
        await editor.prompt(await editor.session(), "tools")
    (plan,) = editor.updates("plan")
    assert plan["entries"] == [
        {"content": "look", "priority": "medium", "status": "completed"},
        {"content": "change", "priority": "medium", "status": "in_progress"},
    ]
    (call,) = editor.updates("tool_call")
    assert call["toolCallId"] == "c1"
    assert (call["title"], call["kind"], call["status"]) == ("Edit a.py", "edit", "pending")
    assert call["content"] == [
        {"type": "diff", "path": "/x/a.py", "oldText": "1\n", "newText": "2\n"}
    ]
    assert call["locations"] == [{"path": "/x/a.py", "line": 3}]
    assert call["rawInput"] == {"path": "/x/a.py"}
    begun, half, done = editor.updates("tool_call_update")
    assert begun["status"] == "in_progress"
    assert "content" not in begun and "rawInput" not in begun
    assert half["content"][1]["content"]["text"] == "```\nhalf\n```"
    assert done["content"][1]["content"]["text"] == "````\n```\nall\n````"
    assert (done["status"], done["rawOutput"]) == (
        "completed",
        {"output": "```\nall", "exitCode": 0},
    )
    notice = editor.updates("agent_thought_chunk")[-1]
    assert notice["content"]["text"] == "another model was asked"
    assert notice["_meta"] == {"go-ent": {"notice": True}}
    assert editor.updates("session_info_update")[-1]["title"] == "Tools"
    assert editor.updates("usage_update")[-1]["cost"] == {"amount": 0.5, "currency": "USD"}


@pytest.mark.spec("A06")
async def test_a_prompt_may_hold_links_files_and_pictures():
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "_meta": {"x": 1}},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
        {"type": "resource", "resource": {"uri": "x", "blob": "AA==", "mimeType": "image/png"}},
        {"type": "resource", "resource": {"uri": "z", "blob": "AA=="}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ]
    async with an_editor() as editor:
        session = await editor.session()
        traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        await editor.result("session/prompt", sessionId=session, prompt=blocks, _meta=traced)
        (given,) = editor.agent.sessions[session].given
    assert given == (
        TextPart(text="look"),
        LinkPart(uri="file:///a", name="a"),
        FilePart(uri="file:///b", text="b"),
        ImagePart(media_type="image/png", data="AA=="),
        FilePart(uri="z"),
        ImagePart(media_type="image/png", data="AAAA"),
    )


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([{"type": "audio", "data": "AA==", "mimeType": "audio/wav"}], "audio is not supported"),
        ([{"type": "video"}], "'video'"),
        ([{"type": "image", "data": "%%%", "mimeType": "image/png"}], "not base64"),
        ([{"type": "image", "data": "AA==", "mimeType": "text/html"}], "'text/html'"),
        ([{"type": "text"}], "text"),
        ([7], "object"),
        ([], "empty"),
        ("hi", "array"),
        (None, "array"),
    ],
)
async def test_a_prompt_of_something_else_is_refused_plainly(blocks: object, words: str):
    async with an_editor() as editor:
        session = await editor.session()
        error = (await editor.ask("session/prompt", sessionId=session, prompt=blocks))["error"]
        assert error["code"] == -32602
        assert words in error["message"]
        assert (await editor.prompt(session, "say 1"))["stopReason"] == "end_turn"


async def test_a_session_that_is_loaded_tells_its_history_before_the_reply():
    async with an_editor() as editor:
        reply = await editor.result("session/load", sessionId="kept", cwd="/", mcpServers=[])
        before = [line["params"]["update"] for line in editor.heard if is_update(line)]
        assert [update["sessionUpdate"] for update in before] == [
            *["user_message_chunk"] * 4,
            "agent_thought_chunk",
            "agent_message_chunk",
            "tool_call",
        ]
        assert [part["content"]["type"] for part in before[:4]] == [
            "text",
            "image",
            "resource_link",
            "resource",
        ]
        await editor.until_update("usage_update")
        assert editor.updates("agent_thought_chunk")[-1]["content"]["text"] == "back again"
        assert reply["modes"]["currentModeId"] == "ask"
        await editor.prompt("kept", "say 1")


async def test_a_session_that_is_resumed_tells_nothing_of_the_past():
    async with an_editor() as editor:
        await editor.result("session/resume", sessionId="kept", cwd="/")
        await editor.until_update("usage_update")
        assert not editor.updates("user_message_chunk")
        assert not editor.updates("agent_message_chunk")
        assert (await editor.prompt("kept", "say 1"))["stopReason"] == "end_turn"


async def test_sessions_are_listed_page_by_page():
    async with an_editor() as editor:
        first = await editor.result("session/list", cwd="/tmp")
        assert first["sessions"][0] == {
            "sessionId": "first",
            "cwd": "/tmp",
            "title": "first",
            "updatedAt": "2026-01-01T00:00Z",
        }
        second = await editor.result("session/list", cursor=first["nextCursor"])
        assert second["sessions"][0]["sessionId"] == "second"
        assert "nextCursor" not in second
        assert await editor.code("session/list", cursor="rubbish") == -32602
        assert await editor.code("session/list", cursor=7) == -32602


async def test_a_closed_session_is_kept_and_a_deleted_one_is_not():
    async with an_editor() as editor:
        session = await editor.session()
        assert await editor.result("session/close", sessionId=session) == {}
        assert await editor.code("session/close", sessionId=session) == -32002
        assert await editor.code("session/prompt", sessionId=session, prompt=words("hi")) == -32002
        await editor.result("session/resume", sessionId=session, cwd="/")
        assert await editor.result("session/delete", sessionId=session) == {}
        assert await editor.result("session/delete", sessionId=session) == {}
        assert await editor.code("session/load", sessionId=session, cwd="/") == -32002


async def test_mode_and_model_are_set_and_told():
    async with an_editor() as editor:
        session = await editor.session()
        assert await editor.result("session/set_mode", sessionId=session, modeId="plan") == {}
        assert editor.updates("current_mode_update") == [
            {"sessionUpdate": "current_mode_update", "currentModeId": "plan"}
        ]
        options = (
            await editor.result(
                "session/set_config_option", sessionId=session, configId="model", value="b/two"
            )
        )["configOptions"]
        assert options[0]["currentValue"] == "b/two"
        assert editor.updates("config_option_update")[-1]["configOptions"] == options
        assert len(editor.updates("current_mode_update")) == 1
        await editor.result(
            "session/set_config_option", sessionId=session, configId="mode", value="ask"
        )
        assert len(editor.updates("current_mode_update")) == 2


async def test_two_sessions_take_turns_side_by_side():
    async with an_editor() as editor:
        one, two = await editor.session(), await editor.session()
        waiting = await editor.begin("session/prompt", sessionId=one, prompt=words("wait"))
        assert (await editor.prompt(two, "say 3"))["stopReason"] == "end_turn"
        await editor.send("session/cancel", sessionId=one)
        assert (await editor.reply(waiting))["result"]["stopReason"] == "cancelled"
