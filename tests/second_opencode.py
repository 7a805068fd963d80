"""A program that stands in for OpenCode 2: as far as was recorded of it, and no further.

It writes down how it is started, but for `--version`. It takes `acp` without options, and `serve` with an
address and a port; its paths begin with `/api`. `run` without `--standalone` hands the work to a background
service: here it only writes that down.
"""

import json
import os
import sys
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

VERSION = "2.0.0"
KNOWN = {"acp": (), "serve": ("--hostname", "--port"), "run": ("--standalone", "--format")}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        say(f"opencode v{VERSION}")
        return
    with (Path(__file__).parent / "started").open("a") as file:
        file.write(" ".join(arguments) + "\n")
    command, *flags = arguments
    for flag in flags:
        name = flag.partition("=")[0]
        if name.startswith("--") and name not in KNOWN[command]:
            say(f"DESCRIPTION\n  USAGE\n  opencode {command} [flags]")
            sys.stderr.write(
                f"\nERROR\n  Unrecognized flag: {name} in command opencode {command}\n"
            )
            sys.exit(1)
    if command == "acp":
        speak()
    elif command == "serve":
        listen(dict(flag.split("=") for flag in flags))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def speak() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["method"] == "initialize":
            told = {"protocolVersion": 1, "agentInfo": {"name": "OpenCode", "version": VERSION}}
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": told}
        else:
            error = {"code": -32603, "message": "Internal service failure"}
            answer = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        say(json.dumps(answer))


class Paths(BaseHTTPRequestHandler):
    """Everything wants the password, and what is not below `/api` is not there."""

    def do_GET(self) -> None:
        password = os.environ.get("OPENCODE_SERVER_PASSWORD", "")
        wanted = "Basic " + b64encode(f"opencode:{password}".encode()).decode()
        if self.headers.get("authorization") != wanted:
            self.answer(401, b"")
        elif self.path == "/api/health":
            self.answer(200, json.dumps({"healthy": True, "version": VERSION}).encode())
        else:
            self.answer(404, b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        return


def listen(flags: dict[str, str]) -> None:
    server = HTTPServer(("127.0.0.1", int(flags["--port"])), Paths)
    say(f"server listening on http://127.0.0.1:{server.server_port}")
    server.serve_forever()


if __name__ == "__main__":
    main()
