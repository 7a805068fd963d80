"""The first reply of `go-ent acp`, given before the agent is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from goent.acp_server.handshake import MAX_LINE_BYTES, Greeting, greet

PLAIN = (
    b'{"jsonrpc":"2.0","id":"a","method":"initialize","params":'
    b'{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true}}}}'
)
NEXT = b'{"jsonrpc":"2.0","id":2,"method":"session/list"}'


def greeted(*pieces: bytes) -> tuple[Greeting, bytes]:
    """What became of these pieces, and what was answered."""
    theirs, ours = os.pipe(), os.pipe()
    for piece in pieces:
        os.write(theirs[1], piece)
    os.close(theirs[1])
    greeting = greet("1.2.3", receive=theirs[0], send=ours[1])
    os.close(ours[1])
    with os.fdopen(ours[0], "rb") as answers:
        said = answers.read()
    os.close(theirs[0])
    return greeting, said


@pytest.mark.spec("A04")
def test_a_client_is_greeted_and_what_follows_is_kept():
    greeting, said = greeted(PLAIN[:20], PLAIN[20:] + b"\n" + NEXT[:10])
    assert greeting.client is not None
    assert greeting.client.fs is not None and greeting.client.fs.read_text_file
    assert greeting.unread == NEXT[:10]
    reply = msgspec.json.decode(said)
    assert (reply["jsonrpc"], reply["id"]) == ("2.0", "a")
    assert reply["result"]["protocolVersion"] == 1
    assert reply["result"]["agentInfo"]["version"] == "1.2.3"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{not json\n",
        b"[1]\n",
        b"\xff\n",
        b"[" * 2000 + b"\n",
        NEXT + b"\n",
        PLAIN,
        PLAIN.replace(b"2.0", b"1.0") + b"\n",
        PLAIN.replace(b'"a"', b"[]") + b"\n",
        PLAIN.replace(b'"id":"a",', b"") + b"\n",
        PLAIN.replace(b'"protocolVersion":1,', b"") + b"\n",
        PLAIN.replace(b"true", b'"\xff"') + b"\n",
        PLAIN.replace(b"initialize", b"acp/initialize") + b"\n",
        b" " * (MAX_LINE_BYTES // 2) + b"\n" + PLAIN + b"\n",
    ],
)
def test_whatever_is_no_plain_beginning_is_passed_on_unanswered(line: bytes):
    assert greeted(line) == (Greeting(None, line), b"")


def test_the_greeting_waits_for_nothing_heavy():
    script = "import sys, goent.entry, goent.acp_server.acp_command, goent.acp_server.handshake; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    heavy = {"asyncio", "anyio", "logging", "ssl", "argparse", "sqlite3", "httpx2", "goent.rpc"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.spec("A04", "A13")
def test_a_client_that_says_everything_at_once_gets_every_answer(tmp_path: Path):
    for beginning in (PLAIN, b"\n" + PLAIN):  # greeted early, and by the agent itself
        done = subprocess.run(
            [str(Path(sys.executable).parent / "go-ent"), "acp"],
            input=beginning + b"\n" + PLAIN + b"\n" + b'{"jsonrpc":"2.0","id":3,"method":"x"}\n',
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        first, *others = (msgspec.json.decode(line) for line in done.stdout.splitlines())
        assert first["result"]["agentInfo"]["name"] == "go-ent"
        assert {other["error"]["code"] for other in others} == {-32600, -32601}
