"""An MCP server with bad manners, by its argument. Standard library only: it starts at once."""

import json
import os
import sys
import time
from typing import Any

MUTE = object()


def say(message: object) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def hear() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def answer(asked: dict[str, Any], result: object) -> None:
    say({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def tool(name: str, **more: object) -> dict[str, object]:
    return {"name": name, "description": f"{name}.", "inputSchema": {"type": "object"}} | more


def serve(*pages: list[dict[str, object]], result: object = None) -> None:
    """A plain server with these tools, whose calls all have this result."""
    while True:
        asked = hear()
        match asked.get("method"):
            case "initialize":
                answer(asked, {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}})
            case "tools/list":
                page = int(asked.get("params", {}).get("cursor", 0))
                more = {"nextCursor": str(page + 1)} if page + 1 < len(pages) else {}
                answer(asked, {"tools": pages[page], **more})
            case "tools/call" if result is not MUTE:
                answer(asked, result)
            case _:
                pass


def hang() -> None:
    sys.stderr.write("thinking\n")
    sys.stderr.flush()
    time.sleep(300)


def gone() -> None:
    sys.stderr.write("no licence found\n")
    sys.exit(3)


def garbage() -> None:
    while hear():
        sys.stdout.write("hello there! {not json\n[1,2]\n\x00\n")
        sys.stdout.flush()


def flood() -> None:
    while True:
        os.write(1, b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}\n' * 999)


def endless() -> None:
    while True:
        os.write(1, b"x" * 65536)


def nonsense() -> None:
    answer(hear(), {"protocolVersion": 5})
    hear()


def refuses() -> None:
    while asked := hear():
        say(
            {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32000, "message": "pay first"}}
        )


def loop() -> None:
    serve(*([tool(f"t{n}")] for n in range(10_000)))


def slow() -> None:
    time.sleep(1)
    serve([tool("t")], result={"content": [{"type": "text", "text": "at last"}]})


def mute() -> None:
    serve([tool("t")], result=MUTE)


def many() -> None:
    serve([tool(f"t{n}") for n in range(10_000)])


def pages() -> None:
    serve([tool("a")], [tool("b")], [tool("c")])


def noisy() -> None:
    sys.stdout.write("Server v1.0 is listening\n\n")
    serve([tool("t")], result={"content": [{"type": "text", "text": "fine"}]})


def collide() -> None:
    long = "a" * 80
    names = ("x.y", "x/y", "x y", f"{long}1", f"{long}2", "ü")
    serve([tool(name) for name in names])


def odd() -> None:
    top: Any = {"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"a": {}}}
    huge = {"type": "object", "properties": {"a": {"description": "x" * 70_000}}}
    bare: Any = {}
    serve(
        [
            tool("bare", inputSchema=bare),
            tool("top", inputSchema=top),
            tool("wordy", description="x" * 20_000),
            tool("good"),
            tool("good", description="another"),
            {"description": "nameless"},
            tool("text", inputSchema={"type": "string"}),
            tool("huge", inputSchema=huge),
            tool("list", inputSchema=[1]),
        ]
    )


def result() -> None:
    serve([tool("t")], result=json.loads(sys.argv[2]))


globals()[sys.argv[1]]()
