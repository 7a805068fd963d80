"""The pipe from a worker's program: an agent that has gone mad, or never was one."""

import logging
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mutation import mutated, rounds
from sandboxed import a_sandbox

from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
    UsageUpdate,
)
from goent.acp.message_parts import AcpText
from goent.agents.acp_translator import AgentTranslator
from goent.agents.agent_connection import AgentConnection
from goent.agents.call_permissions import access_for_call
from goent.agents.driver import AgentSpending
from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import ProtocolError, UnsupportedVersion, WorkerCrashed, WorkerError
from goent.domain.events import DriverEvent
from goent.domain.types import Provider
from goent.opencode.acp_session import AcpProcess
from goent.opencode.opencode_translator import OpenCodeTranslator
from goent.opencode.process_launch import OpenCodeLaunch
from goent.proc.process_table import marked_processes, new_owner
from goent.rpc.byte_streams import LocalStream
from goent.rpc.json_rpc import RpcError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WIRE = Path(__file__).parent.parent / "acp" / "opencode_wire.ndjson"
ASKS = (
    b'{"jsonrpc":"2.0","id":8,"method":"session/request_permission","params":{"sessionId":"s",'
    b'"toolCall":{"toolCallId":"c","title":"bash"},"options":[{"optionId":"o","kind":"reject"}]}}'
)
_UPDATE = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{%b}}}'
_CALL = (
    b'"sessionUpdate":"tool_call","toolCallId":"c","title":"x","kind":"edit","status":"completed",'
    b'"rawInput":{"path":"a","command":["b"],"url":"http://c/"},"rawOutput":{"exit_code":1},'
    b'"locations":[{"path":"/d"}],"content":[{"type":"diff","path":"e","newText":"f"}]'
)
_COST = b'"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":0.5,"currency":"USD"}'
CORPUS = [
    *WIRE.read_bytes().splitlines(),
    ASKS,
    b'{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/x"}}',
    b'{"jsonrpc":"2.0","id":77,"result":{"stopReason":"end_turn"}}',
    _UPDATE % _CALL,
    _UPDATE % _COST,
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
]
DONE = b'{"jsonrpc":"2.0","id":%b,"result":{"stopReason":"end_turn"}}'


class Owner:
    """Takes what comes as the driver does."""

    def __init__(self) -> None:
        self.events: list[DriverEvent] = []
        self._translator = OpenCodeTranslator(Path())
        self._of_any = AgentTranslator(Path())
        self._spending = AgentSpending(Provider(name="a", backend="a", model="m"), resumed=False)

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        self.events.extend(self._translator.translate(update))
        self.events.extend(self._of_any.translate(update))
        if isinstance(update, UsageUpdate) and (report := self._spending.record_update(update)):
            self.events.append(report)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        access_for_call(self._of_any.merge(request.tool_call), WorkerPaths(Path()))
        return PermissionCancelled()


class Agent:
    def __init__(self, stream: LocalStream) -> None:
        self.stream = stream
        self._lines = BufferedByteReceiveStream(stream)

    async def say(self, *lines: bytes) -> None:
        for line in lines:
            await self.stream.send(line + b"\n")

    async def asked(self, method: bytes) -> bytes:
        """The id under which it is asked for this; what else it is told is passed over."""
        with anyio.fail_after(10):
            while True:
                line = await self._lines.receive_until(b"\n", 1 << 24)
                if b'"method":"%b"' % method in line:
                    return line.partition(b'"id":')[2].partition(b",")[0]


@pytest.fixture
def no_fault(caplog: pytest.LogCaptureFixture) -> Callable[[], None]:
    def check() -> None:
        faults = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert not faults, caplog.text[-3000:]

    return check


@asynccontextmanager
async def an_agent() -> AsyncGenerator[tuple[AgentConnection, Agent, Owner]]:
    ours, theirs = socket.socketpair()
    owner = Owner()
    async with (
        LocalStream(ours) as near,
        LocalStream(theirs) as far,
        anyio.create_task_group() as tasks,
    ):
        connection = AgentConnection(near, near, owner, name="Mad")
        tasks.start_soon(connection.run)
        yield connection, Agent(far), owner
        await far.aclose()
        await connection.aclose()


async def turn(connection: AgentConnection) -> str:
    """How a turn ends, whatever the agent does; no other error may come out of it."""
    try:
        with anyio.fail_after(10):
            return (await connection.prompt("ses_1", [AcpText(text="hi")])).stop_reason
    except (WorkerError, RpcError) as error:
        return str(error)


@pytest.mark.spec("A03")
async def test_garbage_in_a_turn_does_not_end_it(no_fault: Callable[[], None]) -> None:
    for chance in rounds("acp"):
        async with an_agent() as (connection, agent, _), anyio.create_task_group() as tasks:

            async def rave(agent: Agent = agent, chance: object = chance) -> None:
                number = await agent.asked(b"session/prompt")
                lines = [mutated(CORPUS, chance) for _ in range(20)]  # pyright: ignore[reportArgumentType] (bound early, as the loop wants it)
                mine = b'"id":' + number
                await agent.say(*(line for line in lines if mine not in line.replace(b" ", b"")))
                await agent.say(DONE % number)

            tasks.start_soon(rave)
            assert await turn(connection) == "end_turn"
    no_fault()


@pytest.mark.spec("A03")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b'{"jsonrpc":"2.0","id":%b,"result":5}', "session/prompt"),
        (b'{"jsonrpc":"2.0","id":%b,"result":{"stopReason":{}}}', "stopReason"),
        (b'{"jsonrpc":"2.0","id":%b,"error":"no"}', "an invalid error"),
        (b'{"jsonrpc":"2.0","id":%b,"error":{"code":"x"}}', "an invalid error"),
        (b'{"jsonrpc":"2.0","id":%b,"error":{"code":-1,"message":"\\ud800 no"}}', "no (-1)"),
        (b'{"jsonrpc":"2.0","id":%b,"result":"' + b"x" * (65 << 20) + b'"}', "at most 67108864"),
        (b"", "went away during 'session/prompt'"),
    ],
    ids=["number", "type", "word", "code", "surrogate", "giant", "leaves"],
)
async def test_a_bad_answer_ends_the_turn_with_what_was_bad(
    answer: bytes, words: str, no_fault: Callable[[], None]
) -> None:
    async with an_agent() as (connection, agent, _), anyio.create_task_group() as tasks:

        async def reply() -> None:
            number = await agent.asked(b"session/prompt")
            if answer:
                await agent.say(answer % number)
            else:
                await agent.stream.aclose()

        tasks.start_soon(reply)
        assert words in await turn(connection)
    no_fault()


async def test_updates_and_answers_after_the_end_are_nobodys(no_fault: Callable[[], None]) -> None:
    async with an_agent() as (connection, agent, owner), anyio.create_task_group() as tasks:

        async def twice() -> None:
            number = await agent.asked(b"session/prompt")
            late = [line for line in CORPUS if b'"session/update"' in line]
            await agent.say(DONE % number, *late, DONE % number)
            second = await agent.asked(b"session/prompt")
            await agent.say(DONE % number, DONE % second)

        tasks.start_soon(twice)
        assert await turn(connection) == "end_turn"
        assert await turn(connection) == "end_turn"
        assert owner.events, "they are told, and it is the session that has no turn for them"
    no_fault()


# Programs that are started as OpenCode and are not.

NAMELESS = '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":%s,"agentCapabilities":{}}}'
HELLO = NAMELESS.replace("{}}}", '{},"agentInfo":{"name":"OpenCode","version":"1.18.33"}}}')
REFUSAL = b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"not today"}}\n'
PROGRAMS = {
    "leaves": ("raise SystemExit('no licence')", "no licence"),
    "garbage": ("w(os.urandom(4_000_000)); sys.exit(3)", "ended with code 3"),
    "giant line": ("w(b'x' * 80_000_000 + b'\\n'); sys.exit(4)", "ended with code 4"),
    "another version": (f"w({HELLO % 9!r}.encode() + b'\\n'); stay()", "ACP version 9"),
    "a refusal": (f"w({REFUSAL!r}); stay()", "not today"),
    "nonsense": ('w(b\'{"id":1,"error":7}\\n\'); stay()', "an invalid error"),
    "silence": ("time.sleep(60)", "not ready within 1 s"),
    "no name": (f"w({NAMELESS % 1!r}.encode() + b'\\n'); stay()", "does not report its version"),
    "no server": (f"w({HELLO % 1!r}.encode() + b'\\n'); stay()", "not ready within 1 s"),
}
PROGRAM = """#!{python} -S
import os, sys, time
def w(data):
    os.set_blocking(1, True)
    while data:
        data = data[os.write(1, data):]
def stay():
    while os.read(0, 65536):
        pass
if sys.argv[1:] == ["--version"]:
    print("1.18.33")
    sys.exit()
os.read(0, 1)
{body}
"""


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program_that_is_no_opencode_is_told_apart_and_ended(
    tmp_path: Path, name: str, no_fault: Callable[[], None]
) -> None:
    body, words = PROGRAMS[name]
    program = tmp_path / "opencode"
    program.write_text(PROGRAM.format(python=sys.executable, body=body))
    program.chmod(0o700)
    launch = OpenCodeLaunch(
        program=program,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        password="x",
        token="t",
        fingerprint="f",
        start_timeout=1.0 if "not ready" in words else 20.0,
        sandbox=a_sandbox(tmp_path / "home"),
    )
    owner = new_owner("fuzz-acp")
    errors = (WorkerCrashed, ProtocolError, UnsupportedVersion)
    with anyio.fail_after(30), pytest.raises(errors) as caught:
        async with AcpProcess.running(launch, f"{owner}/1"):
            pass
    assert words in str(caught.value)
    assert not list(marked_processes(owner))
    no_fault()
