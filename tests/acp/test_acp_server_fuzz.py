"""Whatever a client says, in whatever order: every request is answered once, and the server lives."""

import logging
from collections.abc import Generator
from typing import Any, ClassVar

import anyio
import pytest
from editor import HELLO, Editor, an_editor, words
from hypothesis import given, settings
from hypothesis import strategies as st

SESSIONS = ["s1", "s2", "kept"]
PROMPTS = [words(text) for text in ("say 3", "ask", "wait", "tools", "fail")]

odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def mostly(*values: Any) -> st.SearchStrategy[Any]:
    return st.one_of(*[st.sampled_from(values)] * 4, odd)


params = st.fixed_dictionaries(
    {},
    optional={
        "sessionId": mostly(*SESSIONS),
        "prompt": mostly(*PROMPTS, "say 2"),
        "cwd": mostly("/"),
        "modeId": mostly("plan", "ask"),
        "configId": mostly("model", "mode"),
        "value": mostly("a/one", "plan"),
        "protocolVersion": mostly(1),
        "clientCapabilities": mostly({}, HELLO["clientCapabilities"]),
        "methodId": mostly("go-ent-keys"),
        "mcpServers": mostly([], [{"name": "x", "command": "y"}]),
        "requestId": mostly(1, 3, "r5", "permission-1"),
        "outcome": mostly("allow", "deny"),
        "model": mostly("a/one"),
        "_meta": odd,
    },
)
methods = st.sampled_from(
    [
        "initialize",
        "acp/initialize",
        "authenticate",
        "session/new",
        "session/new",
        "session/create",
        "session/load",
        "session/resume",
        "session/list",
        "session/close",
        "session/delete",
        "session/prompt",
        "session/prompt",
        "session/prompt",
        "session/set_mode",
        "session/set_config_option",
        "session/cancel",
        "permission/response",
        "$/cancel_request",
    ]
) | st.text(max_size=8)
messages = st.tuples(methods, params | odd, st.booleans())
garbage = st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b" "))


class _Faults(logging.Handler):
    """What the server takes for a fault of its own."""

    seen: ClassVar[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.seen.append(self.format(record))


@pytest.fixture(autouse=True, scope="module")
def listening() -> Generator[None]:
    handler = _Faults()
    logging.getLogger("goent").addHandler(handler)
    yield
    logging.getLogger("goent").removeHandler(handler)


@pytest.mark.spec("A03")
@settings(max_examples=60)
@given(dialect=st.booleans(), talk=st.lists(messages | garbage, max_size=14))
def test_every_request_is_answered_once_and_the_server_lives(
    dialect: bool, talk: list[tuple[str, Any, bool] | bytes]
) -> None:
    anyio.run(converse, dialect, talk)
    assert not _Faults.seen


async def converse(dialect: bool, talk: list[tuple[str, Any, bool] | bytes]) -> None:
    hello: tuple[str, Any, bool] = ("acp/initialize" if dialect else "initialize", HELLO, True)
    begin = ("session/create" if dialect else "session/new", {"cwd": "/"}, True)
    async with an_editor(hello=None) as editor:
        asked: set[int | str] = set()
        for number, said in enumerate([hello, begin, *talk], 1):
            if isinstance(said, bytes):
                await editor.say(said)
                continue
            method, fields, wants_reply = said
            name = f"r{number}" if number % 2 else number
            line: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": fields}
            if wants_reply:
                line["id"] = name
                asked.add(name)
            await editor.say(line)
        for session in SESSIONS:
            await editor.send("session/cancel", sessionId=session)
        answered = await heard_until_all_are_answered(editor, asked)
        assert sorted(map(str, answered)) == sorted(map(str, asked)), "once each"
        assert await editor.code("no/such/method") == -32601


async def heard_until_all_are_answered(editor: Editor, asked: set[int | str]) -> list[int | str]:
    answered: list[int | str] = []
    while set(answered) < asked:
        line = await editor.hear()
        if "method" not in line and line["id"] is not None:
            answered.append(line["id"])
    return answered
