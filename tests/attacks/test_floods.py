"""Floods of connections, and a worker's token in other hands, on the real daemon and OpenCode."""

import os
import resource
import socket
import stat
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec
import pytest
from world import World, a_cold_world, a_world, told

from goent.domain.replies import DaemonInfo
from goent.providers.gateway_errors import unmask_retry_words
from goent.system.project_folders import log_path
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

MANY = 1500
NOBODY = 65534
USUAL_LIMIT = 1024  # descriptors that most systems give a process
MEMORY = 20_000_000
LATEST_S = 1.0  # `make bench` holds a tenth of this, on a machine that does nothing else
FLOOD = """
import resource, socket, sys, time
port, user = int(sys.argv[1]), int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
if user:
    import os
    os.setuid(user)
held = []
for _ in range(int(sys.argv[3])):
    one = socket.socket()
    one.connect(("127.0.0.1", port))
    held.append(one)
print("open", flush=True)
sys.stdin.read()
"""


def resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@contextmanager
def more_files() -> Generator[None]:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(usual[1], 8192), usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


@asynccontextmanager
async def flooded(port: int, user: int) -> AsyncGenerator[None]:
    """So many idle connections, held by a process of that user."""
    command = [sys.executable, "-c", FLOOD, str(port), str(user), str(MANY)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin and process.stdout
        assert (await process.stdout.receive()).strip() == b"open"
        yield
        await process.stdin.aclose()


async def latest_answer(url: str) -> float:
    """Of some, each on a connection of its own; without a token, so that no model is asked."""
    waits: list[float] = []
    for _ in range(20):
        began = time.monotonic()
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            assert (await client.get(f"{url}/goent-warm/models")).status_code == 401
        waits.append(time.monotonic() - began)
    return max(waits)


async def a_daemon(world: World) -> DaemonInfo:
    """With as many descriptors as it has on most machines."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_LIMIT, usual[1]))
    try:
        assert (await world.go_ent("ps")).exit == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    daemon = await world.daemon()
    assert daemon
    return daemon


@pytest.mark.parametrize("user", ["ours", "another"])
async def test_idle_connections_neither_stall_the_daemon_nor_fill_its_memory_and_log(
    tmp_path: Path, user: str
) -> None:
    uid = NOBODY if user == "another" and os.geteuid() == 0 else 0
    async with a_cold_world(tmp_path) as world:
        daemon = await a_daemon(world)
        assert daemon.http
        await latest_answer(daemon.http)
        before = resident(daemon.pid)
        async with flooded(urlsplit(daemon.http).port or 0, uid):
            assert await latest_answer(daemon.http) < LATEST_S
            assert resident(daemon.pid) - before < MEMORY
            assert (await world.go_ent("ps")).exit == 0
        log = log_path(world.key, world.env).read_text()
        assert len(log) < 20_000 and "Traceback" not in log


async def test_the_daemon_raises_its_limit_of_descriptors(tmp_path: Path) -> None:
    async with a_cold_world(tmp_path) as world:
        daemon = await a_daemon(world)
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        assert soft == min(hard, 65_536)


async def test_clients_that_say_nothing_keep_nobody_from_the_daemon(tmp_path: Path) -> None:
    async with a_cold_world(tmp_path) as world:
        await a_daemon(world)
        with more_files(), ExitStack() as held:
            for _ in range(MANY):
                one = held.enter_context(socket.socket(socket.AF_UNIX))
                one.connect(str(world.socket))
            began = time.monotonic()
            assert (await world.go_ent("ps")).exit == 0
            assert time.monotonic() - began < 8, "before the silent ones' time is up"
        log = log_path(world.key, world.env).read_text()
        assert "Traceback" not in log


SCRIPT = Script(
    providers={
        name: openai(case(None, say("Hello.")), models=("glm-4",), key=f"sk-{name}-real-key")
        for name in ("moonshot", "deepseek")
    }
)


class Options(msgspec.Struct, rename={"base_url": "baseURL", "key": "apiKey"}):
    base_url: str
    key: str


class Entry(msgspec.Struct):
    options: Options


class Content(msgspec.Struct):
    provider: dict[str, Entry]


def stolen(world: World) -> Content:
    """What OpenCode was told, as whoever can look into its process reads it."""
    for pid in world.processes():
        for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = line.partition(b"=")
            if name == b"OPENCODE_CONFIG_CONTENT" and value:
                return msgspec.json.decode(value, type=Content)
    raise AssertionError("no OpenCode runs")


async def test_a_workers_token_opens_no_other_backend_and_its_database_is_its_owners(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path, SCRIPT) as world, world.client() as lead:
        task = {"task": "hello", "model": "moonshot/glm-4", "wait_s": 90}
        spawned = told(await lead.call_tool("worker_spawn", task))
        assert spawned["result"]["state"] == "completed", spawned
        own = len(world.models.calls)
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as client:
            for name, status in (("moonshot", 200), ("deepseek", 403)):
                options = stolen(world).provider[name].options
                headers = {"authorization": f"Bearer {options.key}"}
                body = {"model": "glm-4", "messages": [{"role": "user", "content": "hi"}]}
                url = f"{options.base_url}/chat/completions"
                answer = await client.post(url, json=body, headers=headers)
                assert answer.status_code == status, answer.text
                if status == 403:
                    assert "backend 'deepseek'" in unmask_retry_words(
                        answer.json()["error"]["message"]
                    )
                    listed = await client.get(f"{options.base_url}/models", headers=headers)
                    assert listed.status_code == status
        assert len(world.models.calls) == own + 1
        databases = list(world.home.rglob("opencode.db*"))
        assert databases
        for path in databases:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
