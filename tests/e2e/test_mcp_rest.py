"""The rest of MCP with everything real: forms, HTTP, and calls that are given up."""

import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp import Client, types
from mcp.client.context import ClientRequestContext
from mcp.client.streamable_http import streamable_http_client
from world import GO_ENT, World, a_world, told

from goent.domain.events import PermissionAnswered
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])

SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "run two",
                call("bash", command="echo one >> ran.txt", description="one"),
                call("bash", command="date >> ran.txt", description="two"),
                say("Both ran."),
            ),
            case("hold", say("Held.").having(gate="held")),
            case(None, say("Hello.")),
            key="sk-moonshot-real-key",
        )
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("rest"), SCRIPT) as world:
        yield world


class Person:
    """Allows whatever is asked, and remembers what it was."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"answer": "allow_once"})


@dataclass(frozen=True)
class Door:
    url: str
    token: str
    process: Process

    async def post(self, **headers: str) -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False) as requests:
            return await requests.post(self.url, headers=headers, json={})


@asynccontextmanager
async def a_door(world: World, *options: str) -> AsyncGenerator[Door]:
    command = [*GO_ENT, "mcp", "--http", "--json", *options]
    async with await anyio.open_process(
        command, cwd=world.project, env=world.env, stderr=None
    ) as process:
        assert process.stdout
        with anyio.fail_after(30):
            told = await BufferedByteReceiveStream(process.stdout).receive_until(b"}", 4096)
        opened = json.loads(told + b"}")
        try:
            yield Door(**opened, process=process)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)


@asynccontextmanager
async def over_http(door: Door, mode: str, person: Person | None = None) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {door.token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as requests:
        transport = streamable_http_client(door.url, http_client=requests)
        async with Client(transport, mode=mode, elicitation_callback=person) as lead:
            yield lead


async def answered(world: World, worker: str) -> list[tuple[str, str]]:
    events = [envelope.event for envelope in await world.journal(worker)]
    return [(e.option, e.by) for e in events if isinstance(e, PermissionAnswered)]


async def run_two(lead: Client) -> dict[str, Any]:
    task = {"task": "run two", "permissions": "ask", "wait_s": 60}
    return told(await lead.call_tool("worker_spawn", task))


async def a_held_worker(world: World, lead: Client) -> str:
    """Its model has been asked and does not answer."""
    already = [c for c in world.models.calls if c.request and "hold" in c.request.prompt]
    worker = told(await lead.call_tool("worker_spawn", {"task": "hold"}))["worker_id"]
    await world.models.at_gate("held", len(already) + 1, timeout=60)
    return worker


def with_person(world: World, mode: str, person: Person) -> Client:
    return replace(world.client(mode=mode), elicitation_callback=person)


@ERAS
async def test_a_form_at_the_client_lets_a_real_worker_go_on(world: World, mode: str) -> None:
    (world.project / "ran.txt").unlink(missing_ok=True)
    person = Person()
    async with with_person(world, mode, person) as lead:
        done = await run_two(lead)
    assert done["state"] == "completed" and done["result"]["text"] == "Both ran."
    assert len((world.project / "ran.txt").read_text().splitlines()) == 2
    assert ["echo one" in person.asked[0], "date" in person.asked[1]] == [True, True]
    assert await answered(world, done["worker_id"]) == [("allow_once", "mcp elicitation")] * 2


async def test_over_http_with_the_token_everything_works_and_without_nothing(
    world: World,
) -> None:
    (world.project / "ran.txt").unlink(missing_ok=True)
    async with a_door(world) as door:
        for mode in ("legacy", "auto"):
            person = Person()
            async with over_http(door, mode, person) as lead:
                done = await run_two(lead)
                assert done["result"]["text"] == "Both ran." and len(person.asked) == 2
                assert done["cwd"] == str(world.project)
        assert (await door.post()).status_code == 401
        right = f"Bearer {door.token}"
        assert (await door.post(Authorization=right, Host="evil.example")).status_code == 403
        async with a_door(world) as another:
            assert another.token != door.token
            assert (await another.post(Authorization=right)).status_code == 401


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_the_door_closes_with_the_command_and_the_worker_lives_on(
    world: World, number: signal.Signals
) -> None:
    async with a_door(world) as door:
        async with over_http(door, "auto") as lead:
            worker = await a_held_worker(world, lead)
        door.process.send_signal(number)
        with anyio.fail_after(30):
            code = await door.process.wait()
            assert code == (0 if number == signal.SIGINT else -number)
            while True:
                try:
                    await door.post()
                except httpx2.TransportError:
                    break
                await anyio.sleep(0.05)
    async with world.client() as lead:
        waiting = {"worker_ids": [worker], "timeout_s": 0}
        waited = told(await lead.call_tool("worker_wait", waiting))
        assert waited["workers"][0]["state"] == "running"
        await lead.call_tool("worker_cancel", {"worker_id": worker, "close": True})


async def test_a_call_given_up_by_the_client_leaves_its_worker_alone(world: World) -> None:
    async with world.client() as lead:
        worker = await a_held_worker(world, lead)
        with anyio.move_on_after(0.3):
            await lead.call_tool("worker_wait", {"worker_ids": [worker], "timeout_s": 200})
        status = told(await lead.call_tool("worker_status", {"worker_id": worker}))
        assert status["state"] == "running"
        world.models.open_gate("held")
        waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
        assert waited["workers"][0]["state"] == "completed"


async def test_what_does_not_go_together_is_refused(world: World) -> None:
    both = await world.go_ent("mcp", "--http", "--embedded")
    assert both.exit == 2 and "--embedded" in both.err
    alone = await world.go_ent("mcp", "--port", "4000")
    assert alone.exit == 2 and "--http" in alone.err
    async with a_door(world) as door:
        port = door.url.split(":")[2].split("/")[0]
        taken = await world.go_ent("mcp", "--http", "--port", port)
        assert taken.exit == 3 and "--port" in taken.err


async def test_when_the_daemon_ends_so_does_the_command(world: World) -> None:
    async with a_door(world) as door:
        assert (await world.go_ent("daemon", "stop", "--force")).exit == 0
        with anyio.fail_after(30):
            assert await door.process.wait() == 3
