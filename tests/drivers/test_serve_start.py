"""How a server of ours comes to be ready."""

import sys
from pathlib import Path

import pytest
from sandboxed import a_sandbox

from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.server import ServeProcess
from goent.proc.process_table import new_mark, new_owner

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

# As OpenCode: whoever connects as it begins to listen is accepted, and never answered.
DEAF_AT_FIRST = f"""#!{sys.executable}
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({{"healthy": True, "version": "1.18.33"}}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

if sys.argv[1:] == ["--version"]:
    print("1.18.33")
    sys.exit()
port = next(int(word.removeprefix("--port=")) for word in sys.argv if word.startswith("--port="))
server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
unheard, _ = server.socket.accept()
server.serve_forever()
"""


class Quiet(ServeProcess):
    async def _follow_events(self) -> None:
        return


async def test_a_server_that_never_answers_its_first_caller_is_asked_again(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text(DEAF_AT_FIRST)
    program.chmod(0o700)
    launch = OpenCodeLaunch(
        program=program,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        password="p",
        token="t",
        fingerprint="f",
        start_timeout=9.0,  # less than the client's own patience with an answer
        sandbox=a_sandbox(tmp_path / "home"),
    )
    async with Quiet.running(launch, new_mark(new_owner("deaf"))) as process:
        assert not process.gone.is_set()
