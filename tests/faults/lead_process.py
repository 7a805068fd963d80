"""A lead agent in a process of its own: for tests that kill it, or its shim.

Told the arguments of its `worker_spawn` calls, it prints the pid of its shim, then what came of
each call (the worker's id, or null), and waits for the workers until it is killed.
"""

import json
import subprocess
import sys
from typing import Any

HANDSHAKE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "lead", "version": "1"},
}


def tell(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    tasks: list[dict[str, Any]] = json.loads(sys.argv[1])
    shim = subprocess.Popen(
        [sys.executable, "-m", "goent", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert shim.stdin and shim.stdout
    tell(shim.pid)

    def say(message: dict[str, Any]) -> None:
        assert shim.stdin
        shim.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        shim.stdin.flush()

    def call(number: int, tool: str, arguments: dict[str, Any]) -> None:
        params = {"name": tool, "arguments": arguments}
        say({"id": number, "method": "tools/call", "params": params})

    say({"id": 0, "method": "initialize", "params": HANDSHAKE})
    shim.stdout.readline()
    say({"method": "notifications/initialized"})
    for number, task in enumerate(tasks, start=1):
        call(number, "worker_spawn", task)
    told: list[str] = []
    for line in shim.stdout:
        answer: dict[str, Any] = json.loads(line)
        if answer.get("id") not in range(1, len(tasks) + 1):
            continue
        worker: str | None = answer.get("result", {}).get("structuredContent", {}).get("worker_id")
        told += [worker] if worker else []
        tell(worker)
        if answer["id"] == len(tasks) and told:
            call(1000, "worker_wait", {"worker_ids": told, "timeout_s": 600})
    sys.stdin.read()  # without a shim there is nothing more to hear: wait for the end


if __name__ == "__main__":
    main()
