"""A lead agent with many workers: `python bench/lead.py PROMPT DIRECTORY:DIRECTORY:… GO_ENT…`.

It talks MCP with `go-ent mcp`, as Claude Code would, and is itself next to nothing: what is
counted is go-ent. Each directory, named as often as one likes, gets a worker.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable

WAIT_S = 200


class Lead:
    """One MCP connection, a request at a time."""

    def __init__(self, command: list[str]) -> None:
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._calls = 0
        client = {"name": "bench", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        self._ask("initialize", hello)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, **arguments: object) -> dict[str, object]:
        reply = self._ask("tools/call", {"name": tool, "arguments": arguments})
        if reply.get("isError"):
            sys.exit(f"{tool}: {reply['content']}")
        return reply["structuredContent"]  # pyright: ignore[reportReturnType] (an object, says MCP)

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(30)

    def _ask(self, method: str, params: object) -> dict[str, object]:
        self._calls += 1
        self._send({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params})
        for line in self._lines():
            message = json.loads(line)
            if message.get("id") == self._calls:
                return message["result"]
        sys.exit(f"go-ent hung up during {method!r}")

    def _send(self, message: object) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()

    def _lines(self) -> Iterable[bytes]:
        assert self._server.stdout
        return self._server.stdout


def main() -> None:
    prompt, directories, *go_ent = sys.argv[1:]
    lead = Lead([*go_ent, "mcp"])
    workers = [
        lead.call("worker_spawn", task=prompt, cwd=directory, permissions="auto")["worker_id"]
        for directory in directories.split(os.pathsep)
    ]
    waited: dict[str, object] = {"timed_out": True}
    while waited["timed_out"]:
        waited = lead.call("worker_wait", worker_ids=workers, timeout_s=WAIT_S)
    lead.close()
    states = [worker["state"] for worker in waited["workers"]]  # pyright: ignore[reportGeneralTypeIssues,reportUnknownVariableType] (JSON)
    if states != ["completed"] * len(workers):
        sys.exit(f"not every worker completed: {states}")


if __name__ == "__main__":
    main()
