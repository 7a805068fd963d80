"""Attempts on the real `opencode serve`: what is asked, what is told, what is left, and what it took."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest
from eval_opencode import KEY, Evaluation, Heard, an_attempt, servers, spec

from goent.domain.types import Usage
from goent.evals.eval_ports import TargetError
from goent.evals.graders.case_grader import grade
from goent.evals.suites import GraderSpec, InputMessage
from goent.evals.targets.opencode_target import OpenCodeTarget
from goent.evals.targets.opencode_transcript import LOG_FOLDER, LOG_SWITCH
from goent.evals.traces import TokenUsage
from goent.opencode.opencode_process import free_port
from goent.opencode.server_api import OpenCodeClient
from goent.proc.child_process import supervised
from goent.proc.process_table import new_mark, new_owner
from goent.store.ledger_store import SqliteLedger
from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import state_dir

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# USD per million tokens in the script's configuration: 1 in, 2 out, 0.1 from the cache.
HELLO = 100e-6 + 20 * 2e-6
WORK = 3 * HELLO + 80e-6 + 9 * 2e-6 + 20 * 0.1e-6


@pytest.mark.spec("E03")
@pytest.mark.spec("E04")
@pytest.mark.spec("E12")
async def test_the_trace_has_every_message_and_every_call_in_order(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    trace = await shared.attempt(cwd, "work a little", heard, permission_policy="once")
    assert [message.content for message in trace.messages] == ["I begin. ", "", "", "All done."]
    assert trace.answer == "All done."
    write, read, bash = trace.calls
    assert [call.tool for call in trace.calls] == ["write", "read", "bash"]
    assert [call.status for call in trace.calls] == ["ok", "error", "ok"]
    assert write.input == {"filePath": str(cwd / "made.txt"), "content": "one\n"}
    assert "missing.txt" in msgspec.convert(read.output, dict[str, str])["error"]
    assert bash.output == "out\n"
    assert [call.id for call in trace.calls] == told_calls(Path(heard.logs[0].file_path))
    assert bash.start_time
    assert bash.end_time
    assert bash.duration_ms is not None
    assert (cwd / "made.txt").read_text() == "one\n"
    assert not trace.partial
    assert list(heard.messages.values()) == list(trace.messages), "told, and the same in the end"


def told_calls(log: Path) -> list[str]:
    """The ids of tool calls, as OpenCode's own events have them."""
    events = [json.loads(line) for line in log.read_text().splitlines()]
    parts = [event["properties"].get("part", {}) for event in events if "properties" in event]
    return list(dict.fromkeys(part["callID"] for part in parts if "callID" in part))


@pytest.mark.spec("E05")
async def test_a_trajectory_is_graded_on_it(shared: Evaluation, cwd: Path) -> None:
    attempt = an_attempt(
        cwd,
        "work a little",
        graders=(
            GraderSpec(
                type="tool-trajectory",
                name="t",
                settings={
                    "mode": "exact",
                    "args_match": "ignore",
                    "expected": [
                        {"tool": "write", "status": "ok"},
                        {"tool": "read", "status": "error"},
                        {"tool": "bash", "max_duration_ms": 60_000},
                    ],
                },
            ),
        ),
    )
    trace = await shared.target(permission_policy="always").invoke(attempt, Heard())
    graded = grade(attempt.case, trace, threshold=0.8, compat=False)
    assert (graded.score, graded.status) == (1.0, "ok"), graded


@pytest.mark.spec("E06")
@pytest.mark.spec("E07")
@pytest.mark.spec("E13")
async def test_the_stream_is_logged_line_by_line_and_only_while_the_attempt_lasts(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    trace = await shared.attempt(cwd, "say hello", heard)
    (chosen,) = heard.logs
    path = Path(chosen.file_path)
    assert trace.log_path == chosen.file_path
    assert (chosen.target_name, chosen.eval_case_id, chosen.attempt) == ("coder", "greets", 0)
    assert path.parent == shared.project / LOG_FOLDER
    assert path.name.endswith(".jsonl")
    assert (path.parents[1] / ".gitignore").read_text() == "*\n"
    assert "_coder_greets_" in path.name
    text = path.read_text()
    header, *events = map(json.loads, text.splitlines())
    assert (header["type"], header["target"], header["eval"]) == ("goent.header", "coder", "greets")
    types = [event["type"] for event in events]
    assert types[0] == "server.connected"
    assert {"message.updated", "message.part.updated", "session.status"} <= set(types)
    assert KEY not in text
    before = servers()
    again = Heard()
    await shared.attempt(cwd, "say hello", again)
    assert path.read_text() == text, "its subscription ended with it"
    assert Path(again.logs[0].file_path) != path
    assert servers() == before, "the server lives on"


@pytest.mark.spec("E06")
async def test_the_log_has_all_that_another_listener_hears_to_the_end_of_the_turn(
    shared: Evaluation, place: Path
) -> None:
    """The last events come after the reply to the prompt, more so when several attempts end at once."""
    folders = [place / name for name in "ab"]
    heard = [Heard() for _ in folders]
    await shared.attempt(place, "say hello")  # now there is a server
    async with anyio.create_task_group() as attempts:
        for folder, witness in zip(folders, heard, strict=True):
            folder.mkdir()
            attempts.start_soon(_compare, shared, folder, witness)


async def _compare(shared: Evaluation, folder: Path, witness: Heard) -> None:
    async with another_listener(next(iter(servers())), folder) as lines:
        for number in range(3):
            await shared.attempt(folder, "say hello", witness)
            events = [event async for event in _until_idle(lines)]
            log = Path(witness.logs[number].file_path).read_text()
            missing = [event for event in events if event not in log]
            assert "Hello from glm-4." in events[-1] + "".join(events)
            assert '"session.idle"' in events[-1]
            assert missing == [], f"attempt {number}"


async def _until_idle(lines: AsyncIterator[str]) -> AsyncGenerator[str]:
    """What a server tells of a turn, from its first message on."""
    session = ""
    with anyio.fail_after(60):
        async for line in lines:
            event = line.removeprefix("data:").strip()
            found = re.search(r'"sessionID":"(ses_\w+)"', event)
            if found and '"type":"message.updated"' in event:
                session = session or found[1]
            if found and found[1] == session:
                yield event
                if '"type":"session.idle"' in event:
                    return


@asynccontextmanager
async def another_listener(server: int, folder: Path) -> AsyncGenerator[AsyncIterator[str]]:
    """The event stream of a directory, as anybody else has it."""
    said = Path(f"/proc/{server}/cmdline").read_text().split("\0")
    port = next(word for word in said if word.startswith("--port=")).removeprefix("--port=")
    entries = Path(f"/proc/{server}/environ").read_text().split("\0")
    password = next(each for each in entries if each.startswith("OPENCODE_SERVER_PASSWORD="))
    async with (
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            auth=("opencode", password.partition("=")[2]),
            headers={"x-opencode-directory": str(folder)},
            timeout=60,
        ) as http,
        http.stream("GET", "/event") as reply,
    ):
        lines = reply.aiter_lines()
        assert "server.connected" in await anext(lines)
        yield lines


@pytest.mark.spec("E08")
async def test_logs_are_switched_off_by_setting_or_environment_and_never_in_the_way(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    trace = await shared.attempt(cwd, "say hello", heard, stream_logs=False)
    assert (heard.logs, trace.log_path) == ([], None)
    with pytest.MonkeyPatch.context() as changed:
        environ = msgspec.convert(shared.servers.context.environ(), dict[str, str])
        changed.setitem(environ, LOG_SWITCH, "off")
        context = msgspec.structs.replace(shared.servers.context, environ=lambda: environ)
        changed.setattr(shared.servers, "context", context)
        await shared.attempt(cwd, "say hello", heard)
    assert heard.logs == []
    (shared.project / "a-file").write_text("")
    trace = await shared.attempt(cwd, "say hello", heard, stream_log_dir="a-file/logs")
    assert trace.answer == "Hello from glm-4."
    assert heard.logs == []
    assert "no stream log" in heard.warnings[0]


@pytest.mark.spec("E02")
@pytest.mark.spec("E09")
@pytest.mark.spec("E11")
async def test_attempts_share_a_server_and_nothing_else(shared: Evaluation, place: Path) -> None:
    folders = [place / name for name in ("a", "b", "c")]
    targets = [
        shared.target(permission_policy="once"),
        shared.target(permission={"edit": "allow", "bash": "allow"}),
        shared.target(permission_policy="always", timeout_seconds=50),
    ]
    async with anyio.create_task_group() as tasks:
        for folder, target in zip(folders, targets, strict=True):
            folder.mkdir()
            tasks.start_soon(target.invoke, an_attempt(folder, "work a little"), Heard())
    for folder in folders:
        assert [path.name for path in folder.iterdir()] == ["made.txt"]
    assert len(servers()) == 1
    asked = [call.request for call in shared.models.calls if call.request]
    by_session = {call.session: call.request.cwd for call in shared.models.calls if call.request}
    assert {str(folder) for folder in folders} <= {request.cwd for request in asked}
    assert [*by_session.values()].count(str(folders[0])) == 1, "one session, for one directory"


@pytest.mark.spec("E15")
@pytest.mark.spec("E16")
async def test_the_model_gets_system_texts_and_links(
    shared: Evaluation, cwd: Path, tmp_path: Path
) -> None:
    note, style = tmp_path / "note.md", tmp_path / "style.instructions.md"
    note.write_text("remember the milk\n")
    attempt = an_attempt(
        cwd,
        InputMessage(role="system", text="You are terse."),
        InputMessage(role="assistant", text="Earlier."),
        InputMessage(role="user", text="echo the prompt", files=(note,)),
        guidelines=(style,),
    )
    trace = await shared.target(system_prompt="You test.").invoke(attempt, Heard())
    request = shared.models.calls[-1].request
    assert request
    assert "You test.\n\nYou are terse." in request.system
    for words in (note.as_uri(), "[assistant]\nEarlier.", style.as_uri()):
        assert words in trace.answer
    assert "remember the milk" not in trace.answer


async def booked(built: Evaluation) -> dict[str, tuple[Usage, Decimal]]:
    """What the user's ledger has, by model; what a call that was cut off cost is not in it."""
    path = state_dir(built.environ) / "ledger.db"
    async with SqliteLedger.open(path, owner="nobody") as ledger:
        return {row.key: (row.usage, row.known_usd) for row in await ledger.report(by="model")}


async def test_calls_through_the_gateway_are_counted_for_their_attempt_alone(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    before = (await booked(shared)).get("glm-4", (Usage(), Decimal()))
    trace = await shared.attempt(cwd, "work a little", heard, permission_policy="once")
    assert trace.llm_calls == 4
    assert trace.usage == TokenUsage(input=380, output=69, cached=20)
    assert trace.cost_usd == pytest.approx(WORK)
    assert (heard.usage, heard.cost_usd) == (trace.usage, trace.cost_usd)
    again = await shared.attempt(cwd, "say hello")
    assert again.usage == TokenUsage(input=100, output=20)
    assert again.cost_usd == pytest.approx(HELLO)
    usage, cost = (await booked(shared))["glm-4"]
    assert usage.total - before[0].total == 380 + 69 + 20 + 120
    assert float(cost - before[1]) == pytest.approx(WORK + HELLO)


@pytest.mark.spec("E09")
@pytest.mark.spec("E18")
async def test_other_settings_are_another_server_and_somebody_elses_is_never_stopped(
    shared: Evaluation, cwd: Path
) -> None:
    await shared.attempt(cwd, "say hello")
    before = servers()
    own = shared.target(model="own/small", config=shared.direct, permission_policy="once")
    trace = await own.invoke(an_attempt(cwd, "work a little"), Heard())
    assert trace.usage == TokenUsage(input=380, output=69, cached=20)
    assert trace.llm_calls == 4
    assert trace.cost_usd == pytest.approx(380e-6 + 69 * 2e-6)
    (other,) = servers() - before
    usage, _ = (await booked(shared))["small"]
    assert usage.total == 469
    async with a_server_of_somebody(other) as (port, password):
        await _use_somebodys(shared, cwd, port, password)
    assert servers() == before | {other}


@asynccontextmanager
async def a_server_of_somebody(like: int) -> AsyncGenerator[tuple[int, str]]:
    """Started as one of ours was, but for its guard."""
    said = Path(f"/proc/{like}/cmdline").read_text().split("\0")
    entries = Path(f"/proc/{like}/environ").read_text().split("\0")
    pairs = (entry.split("=", 1) for entry in entries if "=" in entry)
    env = {name: value for name, value in pairs if name != MARK_VARIABLE}
    content = msgspec.json.decode(env["OPENCODE_CONFIG_CONTENT"], type=dict[str, object])
    env["OPENCODE_CONFIG_CONTENT"] = msgspec.json.encode({**content, "plugin": []}).decode()
    password, port = env["OPENCODE_SERVER_PASSWORD"], free_port()
    command = [said[0], "serve", f"--port={port}"]
    mark = new_mark(new_owner("somebody"))
    async with (
        supervised(command, cwd=Path(env["PWD"]), env=env, mark=mark) as child,
        OpenCodeClient.at(f"http://127.0.0.1:{port}", password) as client,
    ):
        with anyio.fail_after(60):
            while not await client.is_healthy(1):  # noqa: ASYNC110 (a server announces nothing)
                await anyio.sleep(0.1)
        yield port, password
        assert child.returncode is None


async def _use_somebodys(shared: Evaluation, cwd: Path, port: int, password: str) -> None:
    somebodys: dict[str, object] = {
        "base_url": f"http://127.0.0.1:{port}",
        "model": "own/small",
        "permission_policy": "once",
    }
    with pytest.raises(TargetError, match="refuses the password: set OPENCODE_SERVER_PASSWORD"):
        await OpenCodeTarget(spec(**somebodys), shared.servers).invoke(
            an_attempt(cwd, "say hello"), Heard()
        )
    somebodys["env"] = {"OPENCODE_SERVER_PASSWORD": password}
    there = OpenCodeTarget(spec(**somebodys), shared.servers)
    heard = Heard()
    trace = await there.invoke(an_attempt(cwd, "work a little"), heard)
    assert trace.answer == "All done."
    assert [decision.permission for decision in trace.permissions] == ["edit", "bash"]
    assert trace.usage == TokenUsage(input=380, output=69, cached=20)


async def test_a_hard_budget_stops_an_attempt(shared: Evaluation, cwd: Path) -> None:
    await shared.attempt(cwd, "say hello")
    made = len(shared.models.calls)
    config = shared.project / ".goent" / "config.yaml"
    usual = config.read_text()
    config.write_text(f"{usual}budget: {{per_project: 0.000001, hard: true}}\n")
    try:
        with pytest.raises(TargetError, match=r"budget.*per_project") as caught:
            await shared.attempt(cwd, "say hello")
        assert (caught.value.kind, caught.value.retryable) == ("budget_exceeded", False)
        with pytest.raises(
            TargetError, match="'own/small' do not pass through go-ent, which has no key"
        ) as caught:
            await shared.attempt(cwd, "say hello", model="own/small", config=shared.direct)
        assert caught.value.kind == "budget_exceeded"
        assert len(shared.models.calls) == made
    finally:
        config.write_text(usual)


@pytest.mark.spec("E11")
async def test_a_conversation_is_one_session_with_what_each_turn_did_and_took(
    shared: Evaluation, cwd: Path
) -> None:
    made = len(shared.models.calls)
    whole = an_attempt(cwd, InputMessage(role="system", text="You are terse."))
    heard = [Heard(), Heard()]
    async with shared.target(permission_policy="once").conversation(whole) as talk:
        first = await talk.invoke(an_attempt(cwd, *whole.case.input, "work a little"), heard[0])
        second = await talk.invoke(an_attempt(cwd, "say hello"), heard[1])
    calls = shared.models.calls[made:]
    assert len({call.session for call in calls}) == 1
    last = calls[-1].request
    assert last
    assert "You are terse." in last.system, "in every turn"
    assert [call.tool for call in first.calls] == ["write", "read", "bash"]
    assert (second.answer, second.calls) == ("Hello from glm-4.", ())
    assert (first.cost_usd, second.cost_usd) == (pytest.approx(WORK), pytest.approx(HELLO))
    assert [one.permission for one in first.permissions] == ["edit", "bash"]
    assert second.permissions == ()
    assert list(heard[1].messages.values()) == list(second.messages)
    assert len(heard[0].logs) == 1
    assert heard[1].logs == []
    assert first.log_path == second.log_path
