"""Targets without an agent: a command, a fixed answer, a recording."""

import shlex
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.abc
import msgspec
import pytest
from anyio.abc import SocketStream
from eval_stage import AttemptWitness
from hypothesis import given
from hypothesis import strategies as st

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import CaseAttempt, SilentObserver, TargetError
from goent.evals.suites import EvalCase, InputMessage, SuiteLocation, TargetSpec
from goent.evals.targets import command_target
from goent.evals.targets.command_target import CliTarget
from goent.evals.targets.fixture_targets import MockTarget, ReplayTarget
from goent.evals.targets.target_answer import read_answer
from goent.evals.traces import TokenUsage
from goent.proc import process_table

pytestmark = pytest.mark.anyio

ENVIRON = {"PATH": "/usr/bin:/bin"}
NASTY = 'it\'s; touch pwned $(touch pwned) {OUTPUT_FILE} "q" `id`\nline'


def a_case(text: str = "do it", *, name: str = "one", files: tuple[Path, ...] = ()) -> EvalCase:
    said = InputMessage(role="user", text=text, files=files)
    return EvalCase(id=name, suite="s", form="v4", input=(said,))


def cli(command: str, **settings: object) -> CliTarget:
    spec = TargetSpec(name="t", kind="cli", settings={"command": command, **settings})
    return CliTarget(spec, ENVIRON)


def attempt(cwd: Path, case: EvalCase | None = None, **more: float) -> CaseAttempt:
    return CaseAttempt(case=case or a_case(), target="t", cwd=cwd, **more)  # pyright: ignore[reportArgumentType] (numbers by name)


async def test_a_command_is_told_the_case_and_answers_in_a_file(tmp_path: Path) -> None:
    target = cli(
        "cat {PROMPT_FILE} > {OUTPUT_FILE}; printf %s {EVAL_ID}-{ATTEMPT} >> {OUTPUT_FILE}"
    )
    trace = await target.invoke(attempt(tmp_path, a_case("hello ", name="x y")), SilentObserver())
    assert trace.answer == "hello x y-0"
    assert trace.duration_ms is not None and trace.usage is None


async def test_what_a_case_says_is_never_run(tmp_path: Path) -> None:
    link = tmp_path / "a b'c.txt"
    target = cli("printf %s {PROMPT} > {OUTPUT_FILE}; printf %s {FILES} >> {OUTPUT_FILE}")
    trace = await target.invoke(attempt(tmp_path, a_case(NASTY, files=(link,))), SilentObserver())
    assert trace.answer == NASTY + str(link)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("echo broken >&2; exit 3", "command_failed"),
        ("echo said", "no_answer"),
        ("sleep 60", "timeout"),
    ],
)
async def test_a_command_that_fails_says_how(tmp_path: Path, command: str, kind: str) -> None:
    with pytest.raises(TargetError) as failed:
        await cli(command).invoke(attempt(tmp_path, timeout_s=1.0), SilentObserver())
    assert failed.value.kind == kind


async def test_a_command_that_is_cut_off_takes_its_children_along(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    target = cli("sleep 600 & echo $! > new; mv new pid; wait", cwd=str(tmp_path))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(target.invoke, attempt(tmp_path), SilentObserver())
            while not pid.exists():  # noqa: ASYNC110 (a file announces nothing)
                await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
        while process_table.start_time(int(pid.read_text())):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


async def test_a_command_has_its_own_environment(tmp_path: Path) -> None:
    target = cli("printf %s $MODE > {OUTPUT_FILE}", env={"MODE": "fast"})
    assert (await target.invoke(attempt(tmp_path), SilentObserver())).answer == "fast"


async def test_a_command_whose_needs_are_not_met_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_target, "CHECK_PAUSE_S", 0.0)
    asked = tmp_path / "asked"
    check = {"command": f"echo x >> {asked}; test -e {tmp_path}/ready || {{ echo down; exit 7; }}"}
    target = cli(f"touch {tmp_path}/ran; echo hi > {{OUTPUT_FILE}}", healthcheck=check)
    with pytest.raises(TargetError, match="ended with 7: down") as failed:
        await target.invoke(attempt(tmp_path), SilentObserver())
    assert (failed.value.kind, failed.value.retryable) == ("unhealthy", True)
    assert not (tmp_path / "ran").exists()
    (tmp_path / "ready").touch()
    for _ in range(2):
        assert (await target.invoke(attempt(tmp_path), SilentObserver())).answer == "hi"
    assert asked.read_text() == "x\n" * 2, "well once is well"


async def test_who_asks_at_the_same_time_is_told_the_same(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    target = cli("echo hi > {OUTPUT_FILE}", healthcheck={"command": f"echo x >> {asked}; exit 7"})
    again: list[bool] = []

    async def ask() -> None:
        with pytest.raises(TargetError, match="ended with 7") as failed:
            await target.invoke(attempt(tmp_path), SilentObserver())
        again.append(failed.value.retryable)

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(ask)
    assert again == [True] * 8, "it may still come up"
    assert asked.read_text() == "x\n"


async def test_what_is_not_there_is_not_asked_for_before_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_target, "CHECK_PAUSE_S", 0.0)
    asked = tmp_path / "asked"
    target = cli("echo hi > {OUTPUT_FILE}", healthcheck={"command": f"echo x >> {asked}; exit 7"})
    again: list[bool] = []
    for _ in range(6):
        with pytest.raises(TargetError, match="ended with 7") as failed:
            await target.invoke(attempt(tmp_path), SilentObserver())
        again.append(failed.value.retryable)
    assert again == [True, True, False, False, False, False]
    assert asked.read_text() == "x\n" * 3


async def test_a_server_that_a_command_needs_must_answer(tmp_path: Path) -> None:
    async def answer(stream: SocketStream) -> None:
        async with stream:
            asked = await stream.receive()
            status = b"200 OK" if asked.startswith(b"GET /ok") else b"503 Busy"
            await stream.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            for path, words in (("ok", ""), ("no", "answered 503")):
                check = {"url": f"http://127.0.0.1:{port}/{path}"}
                target = cli("echo hi > {OUTPUT_FILE}", healthcheck=check)
                if words:
                    with pytest.raises(TargetError, match=words):
                        await target.invoke(attempt(tmp_path), SilentObserver())
                else:
                    assert (await target.invoke(attempt(tmp_path), SilentObserver())).answer == "hi"
            tasks.cancel_scope.cancel()
    gone = cli("echo hi > {OUTPUT_FILE}", healthcheck={"url": f"http://127.0.0.1:{port}/"})
    with pytest.raises(TargetError, match="did not answer"):
        await gone.invoke(attempt(tmp_path), SilentObserver())


@pytest.mark.parametrize(
    ("head", "well"), [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 200 OK\r\nX: ", False)]
)
async def test_a_server_that_never_ends_its_answer_holds_nobody_up(
    tmp_path: Path, head: bytes, well: bool
) -> None:
    async def trickle(stream: SocketStream) -> None:
        async with stream:
            await stream.send(head)
            with suppress(anyio.BrokenResourceError):
                while True:
                    await stream.send(b"2")
                    await anyio.sleep(0.05)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        check = {"url": f"http://127.0.0.1:{port}/", "timeout_seconds": 0.5}
        target = cli("echo hi > {OUTPUT_FILE}", healthcheck=check)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, trickle)
                if well:
                    assert (await target.invoke(attempt(tmp_path), SilentObserver())).answer == "hi"
                else:
                    with pytest.raises(TargetError, match=r"did not answer within 0\.5 s"):
                        await target.invoke(attempt(tmp_path), SilentObserver())
                tasks.cancel_scope.cancel()


async def test_a_fixed_answer_may_come_after_other_messages(tmp_path: Path) -> None:
    said = [{"role": "assistant", "tool_calls": [{"tool": "bash", "status": "ok"}]}]
    told = {"response": "done", "trace": said, "delay_min_ms": 0, "delay_max_ms": "1"}
    spec = TargetSpec(name="m", kind="mock", settings=told)
    trace = await MockTarget(spec).invoke(attempt(tmp_path), SilentObserver())
    assert (trace.answer, [call.tool for call in trace.calls]) == ("done", ["bash"])


async def test_a_fixed_answer_may_have_a_trace(tmp_path: Path) -> None:
    said = {"output": [{"role": "assistant", "content": "hi", "tool_calls": [{"tool": "read"}]}]}
    spec = TargetSpec(name="m", kind="mock", settings={"response": said})
    trace = await MockTarget(spec).invoke(attempt(tmp_path), SilentObserver())
    assert (trace.answer, [call.tool for call in trace.calls]) == ("hi", ["read"])


async def test_a_recording_is_told_again(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text(
        '{"test_id": "one", "source_target": "a", "text": "first"}\n'
        '{"test_id": "one", "source_target": "b", "text": "other"}\n'
    )
    place = SuiteLocation(file=str(tmp_path / "targets.yaml"), line=3)
    told = {"fixtures": "f.jsonl", "source_target": "b"}
    spec = TargetSpec(name="r", kind="replay", settings=told, place=place)
    target = ReplayTarget(spec)
    for number in (0, 1):  # a fallback is never asked first
        told_again = await target.invoke(attempt(tmp_path, number=number), SilentObserver())
        assert told_again.answer == "other"
    with pytest.raises(TargetError, match="no recording of 'two'"):
        await target.invoke(attempt(tmp_path, a_case(name="two")), SilentObserver())


def replay(folder: Path, *lines: str, **settings: str) -> ReplayTarget:
    (folder / "f.jsonl").write_text("\n".join(lines))
    place = SuiteLocation(file=str(folder / "targets.yaml"), line=3)
    told = {"fixtures": "f.jsonl", **settings}
    return ReplayTarget(TargetSpec(name="r", kind="replay", settings=told, place=place))


def test_everything_that_is_wrong_with_recordings_is_told_at_once(tmp_path: Path) -> None:
    lines = (
        '{"test_id": "one", "text": "a"}',
        '{"test_id": "one", "text": "b"}',
        '{"test_id": "two", "txt": "b"}',
        '{"test_id": 3, "text": "b"}',
        '{"test_id": "four"}',
        "nothing",
    )
    with pytest.raises(ConfigError) as caught:
        replay(tmp_path, *lines)
    told = str(caught.value).replace(f"{tmp_path}/", "").splitlines()
    assert [line.partition("; ")[0] for line in sorted(told)] == [
        "f.jsonl:2: line 1 is a recording of 'one' as well",
        "f.jsonl:3: not a recording: txt: unknown key",
        "f.jsonl:4: not a recording: test_id: expected text, not 3",
        "f.jsonl:5: no answer",
        "f.jsonl:6: not a recording: JSON is malformed: invalid character (byte 4)",
    ]


async def test_of_recordings_of_several_suites_the_own_is_told(tmp_path: Path) -> None:
    lines = (
        '{"test_id": "one", "suite": "s", "eval_path": "evals/demo.yaml", "text": "mine"}',
        '{"test_id": "one", "suite": "other", "eval_path": "./evals/other.yaml", "text": "other"}',
    )
    own = await replay(tmp_path, *lines).invoke(attempt(tmp_path), SilentObserver())
    assert own.answer == "mine"
    chosen = replay(tmp_path, *lines, eval_path="evals/other.yaml")
    assert (await chosen.invoke(attempt(tmp_path), SilentObserver())).answer == "other"
    strangers = [line.replace('"s"', '"third"') for line in lines]
    with pytest.raises(TargetError, match="lines 1 and 2 are recordings of 'one' in other suites"):
        await replay(tmp_path, *strangers).invoke(attempt(tmp_path), SilentObserver())


def test_a_wrong_setting_is_named_with_its_place() -> None:
    place = SuiteLocation(file="targets.yaml", line=7)
    spec = TargetSpec(name="t", kind="mock", settings={"respnse": "x"}, place=place)
    with pytest.raises(ConfigError, match=r"targets.yaml:7: target 't' \(mock\): .*respnse"):
        MockTarget(spec)


def test_an_answer_tells_what_it_took() -> None:
    said = b'{"text": "a", "token_usage": {"input": 3, "output": 4, "cached": 5}, "cost_usd": 0.5}'
    trace = read_answer(said, duration_ms=9)
    assert trace.usage == TokenUsage(input=3, output=4, cached=5)
    assert (trace.cost_usd, trace.duration_ms) == (0.5, 9)


def test_a_null_is_as_good_as_nothing() -> None:
    said = b"""{"text": null, "output": [{"role": null, "content": null, "parent": null, "start_time": null,
        "tool_calls": [{"tool": "read", "id": null, "status": null, "input": null, "duration_ms": null}]}],
        "token_usage": {"input": 3, "output": null, "cached": null, "reasoning": null},
        "cost_usd": null, "file_changes": null}"""
    trace = read_answer(said, warn=pytest.fail)
    assert (
        trace.messages == read_answer(b'{"output": [{"tool_calls": [{"tool": "read"}]}]}').messages
    )
    assert [call.tool for call in trace.calls] == ["read"]
    assert trace.usage == TokenUsage(input=3)


ODD = '{"output": [{"content": "hi", "tool_calls": [{"tool": null}]}]}'


@pytest.mark.parametrize("by", ["cli", "replay", "mock"])
async def test_an_answer_that_wants_to_be_more_than_text_is_warned_of(
    tmp_path: Path, by: str
) -> None:
    place = SuiteLocation(file=str(tmp_path / "targets.yaml"), line=3)
    (tmp_path / "f.jsonl").write_text('{"test_id": "one", ' + ODD[1:])
    spec = TargetSpec(name="r", kind="replay", settings={"fixtures": "f.jsonl"}, place=place)
    fixed = TargetSpec(name="m", kind="mock", settings={"response": msgspec.json.decode(ODD)})
    targets = {
        "cli": cli(f"printf %s {shlex.quote(ODD)} > {{OUTPUT_FILE}}"),
        "replay": ReplayTarget(spec),
        "mock": MockTarget(fixed),
    }
    witness = AttemptWitness()

    trace = await targets[by].invoke(attempt(tmp_path), witness)

    assert '"tool":null' in trace.answer.replace(" ", "") and trace.calls == ()
    (warning,) = witness.warnings
    assert "an answer with `output` is read as plain text" in warning
    assert "`$.output[0].tool_calls[0].tool`" in warning.replace("[...]", "[0]")


def test_json_of_some_other_kind_is_text_without_a_word() -> None:
    for said in (b'{"answer": 7}', b'{"output"', b"[1]", b"7", b"text"):
        assert read_answer(said, warn=pytest.fail).answer == said.decode()


def test_a_line_that_is_no_recording_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "f.jsonl").write_text('\n{"test_id": "one", "text": "x"}\n\n{"id": "two"}\n')
    place = SuiteLocation(file=str(tmp_path / "targets.yaml"), line=3)
    spec = TargetSpec(name="r", kind="replay", settings={"fixtures": "f.jsonl"}, place=place)
    with pytest.raises(ConfigError, match=r"f\.jsonl:4: not a recording"):
        ReplayTarget(spec)


def test_what_a_recorded_subagent_said_and_did_stays_its_own() -> None:
    said = b"""{"output": [{"content": "mine", "tool_calls": [{"tool": "task", "id": "c1"}]},
        {"content": "its", "tool_calls": [{"tool": "bash"}], "parent": "c1"}]}"""
    trace = read_answer(said)
    assert trace.answer == "mine"
    assert [(depth, call.tool) for depth, call in trace.all_calls] == [(0, "task"), (1, "bash")]


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer(said: bytes) -> None:
    assert len(read_answer(said).messages) == 1 or said.strip().startswith(b"{")
