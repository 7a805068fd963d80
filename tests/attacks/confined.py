"""A process as a worker leaves it behind: NoNewPrivs, a session of its own, no parent, no environment.

NoNewPrivs is what go-ent's sandbox sets. The rest is what such a process can do to hide.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from world import GO_ENT, Ended, World

# How a process enters the state in which it attacks, by name.
NO_NEW_PRIVS = "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)"
USER_NAMESPACE = "ctypes.CDLL(None).unshare(0x10000000)"
_HIDDEN = """
import ctypes, json, os, subprocess, sys
ENTER
given = json.loads(sys.argv[1])
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
done = subprocess.run(given["command"], env=given["env"], capture_output=True, text=True, timeout=60)
print(json.dumps([done.returncode, done.stdout, done.stderr]))
"""
_RAW = """
import json, os, socket, sys
path, hello, lines, orphan = json.loads(sys.argv[1])
PARENT = os.getpid()
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(20)
sock.connect(path)
if orphan:  # whoever connected ends, and another speaks
    if os.fork():
        os._exit(0)
    while os.getppid() == PARENT:
        pass
    open(orphan, "w").close()
replies = sock.makefile("rb")
said = [replies.readline()]
sock.sendall(json.dumps(hello).encode() + b"\\n")
for line in lines:
    sock.sendall(json.dumps(line).encode() + b"\\n")
    said.append(replies.readline())
print(json.dumps([json.loads(line or "null") for line in said]))
"""


async def confined(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], *, enter: str = NO_NEW_PRIVS
) -> Ended:
    told = json.dumps({"command": list(command), "env": dict(env)})
    program = _HIDDEN.replace("ENTER", enter)
    with anyio.fail_after(70):
        done = await anyio.run_process([sys.executable, "-c", program, told], cwd=cwd, env={})
    return Ended(*json.loads(done.stdout))


async def confined_go_ent(world: World, *args: str, **more: str) -> Ended:
    """What is needed to find the socket, and nothing that says whose it is."""
    names = ("HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR")
    env = {name: world.env[name] for name in names} | more
    return await confined([*GO_ENT, *args], world.project, env)


async def raw_conversation(
    world: World,
    hello: Mapping[str, object],
    *lines: object,
    enter: str = NO_NEW_PRIVS,
    orphan: Path | None = None,
) -> list[Any]:
    """The daemon's hello, and its answer to each line."""
    told = json.dumps([str(world.socket), {"goent": 1, **hello}, lines, str(orphan or "")])
    ended = await confined([sys.executable, "-c", _RAW, told], world.project, {}, enter=enter)
    assert ended.exit == 0, ended.err
    return json.loads(ended.out)


def call(method: str, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
