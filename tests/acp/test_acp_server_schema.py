"""All that the server says is as the protocol's schema has it, to the last field."""

from typing import Any

import msgspec
import pytest
from acp import schema
from acp_lines import Line
from editor import Editor, an_editor, words
from pydantic import BaseModel

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HELLO: Line = {
    "protocolVersion": 1,
    "clientCapabilities": {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "auth": {"terminal": True},
    },
}


def same(said: Any, kind: type[BaseModel]) -> None:
    """The SDK forgives: what it does not understand is missing when it says the same again."""
    read = kind.model_validate(said)
    again: Any = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert without_null(said) == without_null(again)


def without_null(value: Any) -> Any:
    if isinstance(value, dict):
        members = msgspec.convert(value, dict[str, Any])
        return {key: without_null(one) for key, one in members.items() if one is not None}
    if isinstance(value, list):
        return [without_null(one) for one in msgspec.convert(value, list[Any])]
    return value


def told_well(editor: Editor) -> set[str]:
    """Check every update; which kinds there were."""
    kinds: set[str] = set()
    for line in editor.heard:
        if line.get("method") == "session/update":
            same(line["params"], schema.SessionNotification)
            kinds.add(line["params"]["update"]["sessionUpdate"])
    return kinds


@pytest.mark.spec("A04", "A06", "A07", "A11")
async def test_replies_and_updates_are_as_the_schema_has_them():
    async with an_editor(hello=None) as editor:
        said = await editor.result("initialize", **HELLO)
        keys, _setup = said["authMethods"]
        assert keys.pop("type") == "agent"  # the SDK knows it by having no type
        same(said, schema.InitializeResponse)
        made = await editor.result("session/new", cwd="/")
        same(made, schema.NewSessionResponse)
        session = made["sessionId"]
        same(await editor.prompt(session, "tools"), schema.PromptResponse)
        option = {"sessionId": session, "configId": "mode", "value": "plan"}
        chosen = await editor.result("session/set_config_option", **option)
        same(chosen, schema.SetSessionConfigOptionResponse)
        loaded = await editor.result("session/load", sessionId="kept", cwd="/")
        same(loaded, schema.LoadSessionResponse)
        same(await editor.result("session/list"), schema.ListSessionsResponse)
        assert told_well(editor) == {
            "agent_message_chunk",
            "agent_thought_chunk",
            "available_commands_update",
            "config_option_update",
            "current_mode_update",
            "plan",
            "session_info_update",
            "tool_call",
            "tool_call_update",
            "usage_update",
            "user_message_chunk",
        }


@pytest.mark.spec("A09")
@pytest.mark.parametrize(
    ("prompt", "method", "kind"),
    [
        ("ask", "session/request_permission", schema.RequestPermissionRequest),
        ("files /x/a.py", "fs/read_text_file", schema.ReadTextFileRequest),
        ("run", "terminal/create", schema.CreateTerminalRequest),
    ],
)
async def test_what_is_asked_is_as_the_schema_has_it(
    prompt: str, method: str, kind: type[BaseModel]
):
    async with an_editor(hello=HELLO) as editor:
        session = await editor.session()
        number = await editor.begin("session/prompt", sessionId=session, prompt=words(prompt))
        same((await editor.until(method))["params"], kind)
        await editor.send("session/cancel", sessionId=session)
        assert (await editor.reply(number))["result"]["stopReason"] == "cancelled"
