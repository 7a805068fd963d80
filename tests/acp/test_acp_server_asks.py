"""What the agent asks of its client: permission, files, terminals; and a client that is slow."""

from typing import Any

import anyio
import pytest
from acp_lines import Line
from editor import Editor, an_editor, words

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

EVERYTHING: Line = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
    },
}


async def asking(editor: Editor) -> tuple[int, Line]:
    """A turn that waits for a permission, and the question."""
    session = await editor.session()
    number = await editor.begin("session/prompt", sessionId=session, prompt=words("ask"))
    return number, await editor.until("session/request_permission")


@pytest.mark.spec("A09")
async def test_a_permission_is_asked_for_with_all_that_an_editor_shows():
    async with an_editor() as editor:
        number, question = await asking(editor)
        params = question["params"]
        assert editor.updates("tool_call")[0]["toolCallId"] == params["toolCall"]["toolCallId"]
        assert params["toolCall"] == {
            "toolCallId": "c1",
            "title": "Edit a.py",
            "kind": "edit",
            "status": "pending",
            "content": [{"type": "diff", "path": "/x/a.py", "oldText": "1\n", "newText": "2\n"}],
            "locations": [{"path": "/x/a.py", "line": 3}],
            "rawInput": {"path": "/x/a.py"},
        }
        assert [(option["optionId"], option["kind"]) for option in params["options"]] == [
            ("allow_once", "allow_once"),
            ("allow_always", "allow_always"),
            ("reject", "reject_once"),
        ]
        assert params["options"][1]["name"] == "Allow for this session: /x"
        await editor.answer(question["id"], selected("allow_once"))
        assert (await editor.reply(number))["result"]["stopReason"] == "end_turn"
        assert editor.text() == "allow_once"


def selected(option: Any) -> Line:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.spec("A10")
@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (selected("allow_always"), "allow_always"),
        (selected("reject"), "reject"),
        (selected("yes please"), "reject"),
        (selected(7), "reject"),
        ({"outcome": {"outcome": "maybe"}}, "reject"),
        ({"outcome": "allow_once"}, "reject"),
        ({}, "reject"),
        (None, "reject"),
        ([], "reject"),
        ({"outcome": {"outcome": "cancelled"}}, "None"),
    ],
)
async def test_whoever_answers_nonsense_has_said_no(answer: Any, heard: str):
    async with an_editor() as editor:
        number, question = await asking(editor)
        await editor.answer(question["id"], answer)
        assert (await editor.reply(number))["result"]["stopReason"] == "end_turn"
        assert editor.text() == heard


@pytest.mark.spec("A10")
async def test_a_client_that_refuses_to_be_asked_has_said_no():
    async with an_editor() as editor:
        number, question = await asking(editor)
        error = {"code": -32601, "message": "method not found"}
        await editor.say({"jsonrpc": "2.0", "id": question["id"], "error": error})
        await editor.reply(number)
        assert editor.text() == "reject"


async def test_what_a_client_does_not_offer_is_not_asked_for():
    async with an_editor() as editor:
        session = await editor.session()
        await editor.prompt(session, "files /x/a.py")
        await editor.prompt(session, "run")
        assert editor.text() == "no filesno terminals"


async def test_files_are_read_and_written_by_the_editor():
    async with an_editor(hello=EVERYTHING) as editor:
        session = await editor.session()
        ask = {"sessionId": session, "prompt": words("files /x/a.py")}
        number = await editor.begin("session/prompt", **ask)
        read = await editor.until("fs/read_text_file")
        assert read["params"] == {"sessionId": session, "path": "/x/a.py"}
        await editor.answer(read["id"], {"content": "text"})
        write = await editor.until("fs/write_text_file")
        assert write["params"] == {"sessionId": session, "path": "/x/a.py", "content": "text!"}
        await editor.answer(write["id"], None)
        await editor.reply(number)
        assert editor.text() == "text"


@pytest.mark.parametrize(
    ("reply", "heard"),
    [
        ({"error": {"code": -32002, "message": "gone"}}, "FileNotFoundError: "),
        ({"error": {"code": -1, "message": "locked"}}, "OSError: "),
        ({"result": {"content": 7}}, "OSError: "),
        ({"result": None}, "OSError: "),
    ],
)
async def test_a_file_that_the_editor_does_not_give_is_an_error_of_files(reply: Line, heard: str):
    async with an_editor(hello=EVERYTHING) as editor:
        ask = {"sessionId": await editor.session(), "prompt": words("files /x/a.py")}
        number = await editor.begin("session/prompt", **ask)
        read = await editor.until("fs/read_text_file")
        await editor.say({"jsonrpc": "2.0", "id": read["id"], **reply})
        await editor.reply(number)
        assert editor.text().startswith(heard)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"exitCode": 3}, 3),
        ({"exitCode": None, "signal": "SIGKILL"}, 137),
        ({"signal": "odd"}, 128),
    ],
)
async def test_commands_run_in_the_editors_terminal(status: Line, code: int):
    async with an_editor(hello=EVERYTHING) as editor:
        session = await editor.session("/tmp")
        ask = {"sessionId": session, "prompt": words("run")}
        number = await editor.begin("session/prompt", **ask)
        create = await editor.until("terminal/create")
        assert create["params"] == {
            "sessionId": session,
            "command": "ls",
            "args": ["-l"],
            "env": [{"name": "A", "value": "b"}],
            "cwd": "/tmp",
            "outputByteLimit": 1000,
        }
        await editor.answer(create["id"], {"terminalId": "t1"})
        for method, result in (
            ("terminal/wait_for_exit", status),
            ("terminal/output", {"output": "out", "truncated": False, "exitStatus": status}),
            ("terminal/kill", {}),
            ("terminal/release", None),
        ):
            asked = await editor.until(method)
            assert asked["params"] == {"sessionId": session, "terminalId": "t1"}
            await editor.answer(asked["id"], result)
        await editor.reply(number)
        assert editor.text() == f"t1 {code} out"


async def test_a_client_that_stops_reading_gets_the_pieces_in_one():
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words("say 40000"))
        standing_in = editor.agent.sessions[session]
        with anyio.fail_after(30):
            while standing_in.said < 40000:  # noqa: ASYNC110 (the session goes on, unread)
                await anyio.sleep(0.01)
        await editor.reply(number)
        assert editor.text() == "".join(f"{place} " for place in range(40000))
        assert len(editor.updates("agent_message_chunk")) < 10000


async def test_of_a_call_that_floods_a_slow_client_gets_the_latest_word():
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words("flood"))
        with anyio.fail_after(60):
            await editor.agent.sessions[session].flooded.wait()
        await editor.reply(number)
        told = editor.updates("tool_call_update")
        assert len(told) < 1000
        assert (told[-1]["status"], told[-1]["rawOutput"]["output"]) == ("completed", "over")


@pytest.mark.spec("A09")
async def test_a_question_comes_after_all_that_was_said_before_it():
    async with an_editor() as editor:
        session = await editor.session()
        ask = {"sessionId": session, "prompt": words("say 40000 and ask")}
        number = await editor.begin("session/prompt", **ask)
        standing_in = editor.agent.sessions[session]
        with anyio.fail_after(30):
            while standing_in.said < 40000:  # noqa: ASYNC110 (the session goes on, unread)
                await anyio.sleep(0.01)
        question = await editor.until("session/request_permission")
        assert editor.text().endswith(" 39999 ")
        await editor.answer(question["id"], selected("reject"))
        await editor.reply(number)


async def test_a_session_waits_for_a_client_that_reads_nothing_at_all():
    async with an_editor() as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words("say 200000"))
        standing_in = editor.agent.sessions[session]
        before = -1
        with anyio.fail_after(30):
            while before != standing_in.said or not before:
                before = standing_in.said
                await anyio.sleep(0.3)
        assert before < 200_000
        await editor.reply(number)
        assert editor.text() == "".join(f"{place} " for place in range(200_000))
