"""A scripted model behind Google's API, on loopback: it calls tools in turn, then says it is done."""

import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Call = tuple[str, dict[str, Any]]  # a tool's name, as go-ent knows it, and the arguments
DONE = "Handed over."


class GeminiModel(ThreadingHTTPServer):
    """Answers the nth request of a conversation by the nth call."""

    def __init__(self, calls: Sequence[Call]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls = calls
        self.results: list[dict[str, Any]] = []
        self.declared: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def part(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the model says next. Side questions of the client, without tools, get words."""
        tools = [
            declared["name"]
            for tool in request.get("tools", ())
            for declared in tool.get("functionDeclarations", ())
        ]
        if not tools:
            return {"text": "{}"}
        self.declared.update(tools)
        self.results = [
            part["functionResponse"]["response"]
            for content in request["contents"]
            for part in content["parts"]
            if "functionResponse" in part
        ]
        if len(self.results) >= len(self.calls):
            return {"text": DONE}
        name, arguments = self.calls[len(self.results)]
        (named,) = (tool for tool in tools if tool.endswith(f"go-ent_{name}"))
        return {"functionCall": {"name": named, "args": arguments}}


class Handler(BaseHTTPRequestHandler):
    server: GeminiModel  # pyright: ignore[reportIncompatibleVariableOverride] (the one that made it)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = {"role": "model", "parts": [self.server.part(request)]}
        answer = json.dumps(
            {
                "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
                "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3},
            }
        )
        streams = "stream" in self.path
        body = (f"data: {answer}\r\n\r\n" if streams else answer).encode()
        self.send_response(200)
        kind = "text/event-stream" if streams else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 (its name there)


@contextmanager
def a_gemini_model(calls: Sequence[Call]) -> Generator[GeminiModel]:
    with GeminiModel(calls) as model:
        thread = threading.Thread(target=model.serve_forever)
        thread.start()
        try:
            yield model
        finally:
            model.shutdown()
            thread.join()
