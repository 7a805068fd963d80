"""An OpenCode server that does as it is told, for what the real one cannot be brought to do."""

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSION = "ses_1"


class ScriptedOpenCode(ThreadingHTTPServer):
    """It takes a prompt and never answers; `busy` is what it says of the session meanwhile.

    `questions` are open, and told only to those who ask for them. Or it `hangs_up` on a prompt, or is `deaf` to
    what has this last word in its path.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.busy = True
        self.hangs_up = False
        self.deaf = ""
        self.questions: Sequence[Mapping[str, object]] = ()
        self.replies: list[tuple[str, str]] = []
        self.prompted = threading.Event()
        self.aborted = threading.Event()
        self.deleted = threading.Event()
        self.left = threading.Event()  # nobody listens to the event stream any more
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @classmethod
    @contextmanager
    def running(cls) -> "Generator[ScriptedOpenCode]":
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,))
            thread.start()
            try:
                yield server
            finally:
                server.over.set()
                server.shutdown()
                thread.join()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is none of ours to report."""


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedOpenCode  # pyright: ignore[reportIncompatibleVariableOverride] (it is)
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        match self.path.partition("?")[0].split("/")[1:]:
            case ["global", "health"]:
                self._answer({"healthy": True, "version": "1.18.33"})
            case ["event"]:
                self._stream()
            case ["session", "status"]:
                self._answer({SESSION: {"type": "busy"}} if self.server.busy else {})
            case ["permission"]:
                self._answer(self.server.questions)
            case ["session", _, "message" | "children"]:
                self._answer([])
            case _:
                tokens = {"input": 10, "output": 2, "reasoning": 3, "cache": {"read": 4}}
                self._answer({"id": SESSION, "cost": 0.5, "tokens": tokens})

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers.get("content-length", 0)))
        words = self.path.partition("?")[0].split("/")[1:]
        if words[-1] == self.server.deaf:
            self.server.over.wait()
        match words:
            case ["session", _, "message"]:
                self.server.prompted.set()
                if not self.server.hangs_up:
                    self.server.over.wait()
                self.close_connection = True
            case ["session", _, "abort"]:
                self.server.aborted.set()
                self._answer(True)
            case ["permission", question, "reply"]:
                self.server.replies.append((question, json.loads(said)["reply"]))
                self._answer(True)
            case _:
                self._answer({"id": SESSION})

    def do_DELETE(self) -> None:
        self.server.deleted.set()
        self._answer(True)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        event = b'data: {"type":"server.connected","properties":{}}\n\n'
        try:
            while True:
                self.wfile.write(event)
                event = b'data: {"type":"server.heartbeat","properties":{}}\n\n'
                if self.server.over.wait(0.05):
                    return
        except OSError:
            self.server.left.set()

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name there)
        pass
