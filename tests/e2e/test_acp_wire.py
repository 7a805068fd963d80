"""`go-ent acp` on the bare wire: the protocol's rules, bad input, and the older dialect."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from acp_lines import Line, Wire
from acp_process import a_wire
from world import World, a_world

from goent.testing.script import Fault, Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

TODOS = [
    {"content": "look", "status": "completed"},
    {"content": "act", "status": "in_progress"},
]
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("say hello", say("Hello, you.")),
            case("plan it", call("TodoWrite", todos=TODOS), say("Planned.")),
            case("write", call("Write", file_path="note.txt", content="x\n"), say("Done.")),
            case(
                "go slowly", say("Half of it.").having(chunk=5, fault=Fault(kind="hang", after=1))
            ),
            case(None, say("What?")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
MODEL = ("--model", "moonshot/glm-4")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with a_world(tmp_path, SCRIPT) as world:
        yield world


def words(text: str) -> list[Line]:
    return [{"type": "text", "text": text}]


async def lives(wire: Wire, world: World) -> str:
    """It takes a turn in a new session, by the rules of order."""
    number = await wire.begin("session/new", cwd=str(world.project), mcpServers=[])
    session = (await wire.reply(number))["result"]["sessionId"]
    mine = [line for line in wire.heard if line.get("params", {}).get("sessionId") == session]
    assert mine == [], "nothing is told of a session before it is named"
    number = await wire.begin("session/prompt", sessionId=session, prompt=words("say hello"))
    assert (await wire.reply(number))["result"]["stopReason"] == "end_turn"
    assert said(wire, session) == "Hello, you.", "everything is told before the turn's end"
    return session


def take_the_keys(world: World) -> None:
    world.env = {name: value for name, value in world.env.items() if not name.endswith("_KEY")}
    (world.home / ".config" / "opencode" / "opencode.json").unlink()


def said(wire: Wire, session: str) -> str:
    told = [
        line["params"]["update"]
        for line in wire.heard
        if line.get("method") == "session/update" and line["params"]["sessionId"] == session
    ]
    return "".join(
        update["content"]["text"]
        for update in told
        if update["sessionUpdate"] == "agent_message_chunk"
    )


@pytest.mark.spec("A01", "A02", "A03")
async def test_whatever_comes_first_the_agent_answers_and_lives(world: World):
    async with a_wire(world, *MODEL) as wire:
        for line, code in (
            (b"{not json", -32700),
            (b"\xff\xfe", -32700),
            (b"[1,2,3]", -32600),
            (b"[" * 50_000, -32700),
            (b'{"jsonrpc":"2.0"}', -32600),
        ):
            await wire.say(line)
            reply = await wire.hear()
            assert (reply["id"], reply["error"]["code"]) == (None, code)
        assert (await wire.error("session/new", cwd="/"))["code"] == -32600
        await wire.say(
            b'{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":1}}'
        )
        assert (await wire.reply("hi"))["result"]["protocolVersion"] == 1
        assert (await wire.error("initialize", protocolVersion=1))["code"] == -32600
        await wire.send("no/such/notice")
        assert (await wire.error("no/such/method"))["code"] == -32601
        assert (await wire.error("session/prompt", sessionId=5))["code"] == -32602
        unknown = await wire.error("session/prompt", sessionId="x", prompt=words("hi"))
        assert unknown["code"] == -32002
        refused = await wire.error("session/new", cwd="here")
        assert refused["code"] == -32602 and "'here'" in refused["message"]
        await lives(wire, world)


@pytest.mark.spec("A05")
async def test_an_unknown_version_gets_ours(world: World):
    async with a_wire(world, *MODEL) as wire:
        said = await wire.result("initialize", protocolVersion=99, clientCapabilities={})
        assert said["protocolVersion"] == 1
        await lives(wire, world)


async def test_it_starts_without_a_key_and_says_how_to_give_one(world: World):
    take_the_keys(world)
    async with a_wire(world) as wire:
        said = await wire.result("initialize", protocolVersion=1)
        assert [method["type"] for method in said["authMethods"]] == ["agent"]
        for method, params in (
            ("session/new", {"cwd": str(world.project)}),
            ("authenticate", {"methodId": said["authMethods"][0]["id"]}),
        ):
            error = await wire.error(method, **params)
            assert error["code"] == -32000
            assert "go-ent init" in error["message"]


@pytest.mark.parametrize("words", [("acp", "--login"), ("--login",)])
async def test_logging_in_says_what_can_be_asked_or_how_to_give_a_key(
    world: World, words: tuple[str, ...]
):
    well = await world.go_ent(*words)
    assert (well.exit, "moonshot/glm-4" in well.out) == (0, True)
    take_the_keys(world)
    ill = await world.go_ent(*words)
    assert ill.exit == 1
    assert "go-ent init" in ill.err


async def test_a_session_that_cannot_be_kept_anywhere_is_refused_in_plain_words(world: World):
    in_the_way = world.home / "state"
    in_the_way.write_text("no folder")
    world.env["XDG_STATE_HOME"] = str(in_the_way)
    async with a_wire(world, *MODEL) as wire:
        await wire.result("initialize", protocolVersion=1)
        error = await wire.error("session/new", cwd=str(world.project))
        assert error["code"] == -32603
        assert str(in_the_way) in error["message"]
        in_the_way.unlink()
        await lives(wire, world)


@pytest.mark.spec("A08")
async def test_a_cancelled_turn_keeps_what_was_said(world: World):
    async with a_wire(world, *MODEL) as wire:
        await wire.result("initialize", protocolVersion=1)
        session = await lives(wire, world)
        for cancel in ("session/cancel", "$/cancel_request"):
            number = await wire.begin(
                "session/prompt", sessionId=session, prompt=words("go slowly")
            )
            before = said(wire, session)
            while not said(wire, session).removeprefix(before):
                await wire.hear()
            params = {"sessionId": session} if cancel == "session/cancel" else {"requestId": number}
            await wire.send(cancel, **params)
            assert (await wire.reply(number))["result"]["stopReason"] == "cancelled"
            assert said(wire, session).removeprefix(before) == "Half "


async def created(wire: Wire, world: World) -> str:
    await wire.result("acp/initialize", protocolVersion=1, capabilities={})
    asked = {"cwd": str(world.project), "model": "moonshot/glm-4"}
    return (await wire.result("session/create", **asked))["sessionId"]


@pytest.mark.spec("A05")
async def test_the_dialect_refuses_another_version(world: World):
    async with a_wire(world) as wire:
        error = await wire.error("acp/initialize", protocolVersion=2, capabilities={})
        assert (error["code"], error["data"]) == (-32602, {"supportedVersions": [1]})
        assert (await wire.error("session/create", cwd="/"))["code"] == -32600


@pytest.mark.spec("A04", "A06", "A07", "A11", "A12")
async def test_the_dialect_tells_steps_shares_and_output(world: World):
    async with a_wire(world) as wire:
        session = await created(wire, world)
        end = await wire.result("session/prompt", sessionId=session, prompt="plan it")
        assert (end["stopReason"], end["output"]) == ("end_turn", "Planned.")
        assert end["usage"]["totalTokens"] > 0
        assert "costUsd" in end
    told = [line["params"] for line in wire.heard if line.get("method") == "session/progress"]
    assert ("act", 50, "1 of 2 done") in [(p["step"], p["percent"], p["message"]) for p in told]
    parts = [line["params"] for line in wire.heard if line.get("method") == "session/output"]
    assert "".join(part["content"]["text"] for part in parts) == "Planned."


@pytest.mark.spec("A09", "A10")
@pytest.mark.parametrize(("outcome", "done"), [("allow", True), ("deny", False)])
async def test_the_dialect_asks_by_notifications(world: World, outcome: str, done: bool):
    async with a_wire(world) as wire:
        session = await created(wire, world)
        number = await wire.begin("session/prompt", sessionId=session, prompt="write")
        question = (await wire.until("permission/request"))["params"]
        assert (question["tool"], question["input"]["content"]) == ("Write", "x\n")
        await wire.send("permission/response", requestId=question["requestId"], outcome=outcome)
        assert (await wire.reply(number))["result"]["output"] == "Done."
        assert (world.project / "note.txt").exists() is done


@pytest.mark.spec("A08", "A12")
async def test_a_cancelled_session_of_the_dialect_is_over(world: World):
    async with a_wire(world) as wire:
        session = await created(wire, world)
        number = await wire.begin("session/prompt", sessionId=session, prompt="go slowly")
        await wire.until("session/output")
        cancelled = await wire.begin("session/cancel", sessionId=session)
        end = (await wire.reply(number))["result"]
        assert (end["stopReason"], end["output"]) == ("cancelled", "Half ")
        assert (await wire.reply(cancelled))["result"] == {
            "sessionId": session,
            "status": "cancelled",
            "output": "Half ",
        }
        error = await wire.error("session/prompt", sessionId=session, prompt="say hello")
        assert "was cancelled" in error["message"]
        asked = {"cwd": str(world.project), "model": "moonshot/glm-4"}
        another = (await wire.result("session/create", **asked))["sessionId"]
        with anyio.fail_after(60):
            end = await wire.result("session/prompt", sessionId=another, prompt="say hello")
        assert end["output"] == "Hello, you."
