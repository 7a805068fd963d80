"""The method `cli` without OpenCode: what is printed, how it ends, which rules it gets.

Where a process is needed, a shell script stands in for the program.
"""

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path

import anyio
import pytest
from opencode_stage import Heard
from witness import Witness

from goent.agents.driver_context import DriverContext
from goent.agents.process_vitals import read_signs
from goent.domain.errors import (
    AuthRefused,
    ConfigError,
    GoentError,
    NothingSaid,
    PermissionDenied,
    ProtocolError,
    RateLimited,
    RequestError,
    UnknownModel,
    WorkerCrashed,
    WorkerIsClosed,
)
from goent.domain.events import DriverEvent, TextDelta, Thought, ToolCall, UsageReported
from goent.domain.ports import WorkerSpec
from goent.domain.settings import OpenCodeSettings, PermissionAction, PermissionRule, Settings
from goent.domain.types import Command, FileChange, Preset, Prompt, Provider, Usage
from goent.gateway.gateway import Gateway
from goent.opencode.call_guard import BypassDetector
from goent.opencode.config_overlay import permission_map
from goent.opencode.driver import OpenCodeRunDriver
from goent.opencode.opencode_process import first_start
from goent.opencode.opencode_translator import RunTranscript
from goent.opencode.run_session import RunSession
from goent.permissions.access_rules import strictest_action
from goent.permissions.permission_rules import PRESET_RULES, rules_for
from goent.proc.child_process import supervised
from goent.proc.process_table import marked_processes, new_mark, new_owner
from goent.providers.call_plan import CallPlan
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
GLM = Provider(name="glm", backend="moonshot", model="glm-4")
HELLO = '{"type":"text","part":{"text":"Hello.","messageID":"m1"}}'


def read(*lines: str, direct: bool = False) -> tuple[RunTranscript, list[DriverEvent]]:
    transcript = RunTranscript(GLM, Path("/p"), BypassDetector(), direct=direct)
    return transcript, [event for line in lines for event in transcript.read(line.encode())]


def nowhere(worker: str, backend: str, model: str) -> CallPlan:
    raise AssertionError((worker, backend, model))


@asynccontextmanager
async def a_gate() -> AsyncGenerator[Gateway]:
    async with Connections.open() as connections:
        upstream = Upstream(connections, Witness())
        async with Gateway.open(upstream, nowhere) as gate:
            yield gate


async def by_script(
    folder: Path, script: str, heard: Heard, *, cancel: bool = False, prompt: str = "go"
) -> str:
    """Take a turn with a shell script in the place of `opencode`."""
    program = folder / "opencode"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec echo 1.18.33\n{script}\n')
    program.chmod(0o755)
    settings = Settings(project=folder, opencode=OpenCodeSettings(command=str(program)))
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}

    owner = new_owner("scripts")
    async with a_gate() as gate:
        driver = OpenCodeRunDriver(
            DriverContext(settings=lambda: settings, environ=lambda: environ, state_dir=folder),
            gate,
            owner=owner,
        )
        spec = WorkerSpec(id="w1", cwd=folder, provider=GLM, method="cli", rules=())
        outcome = "failed"
        async with driver.open(spec) as session, anyio.create_task_group() as tasks:
            assert isinstance(session, RunSession)
            session.mark_loaded(str(folder))  # the script has no guard
            if cancel:
                tasks.start_soon(_cancel_when, folder / "ready", session.cancel)
            try:
                outcome = await session.prompt(Prompt(text=prompt), heard.emit)
            except GoentError as error:
                heard.errors.append(error)
            assert not list(marked_processes(owner)), "nothing is left running"
            with pytest.raises(WorkerIsClosed):
                await session.prompt(Prompt(text="again"), heard.emit)
    return outcome


async def _cancel_when(there: Path, cancel: Callable[[], Awaitable[None]]) -> None:
    while not await anyio.Path(there).exists():  # noqa: ASYNC110 (a file announces nothing)
        await anyio.sleep(0.02)
    await cancel()


def test_lines_become_events() -> None:
    state = (
        '{"status":"completed","input":{"filePath":"/p/a.txt","content":"x\\n"},"output":"Wrote",'
        '"metadata":{"exists":false},"title":"a.txt"}'
    )
    bash = '{"status":"completed","input":{"command":"false"},"output":"","metadata":{"exit":1}}'
    transcript, events = read(
        '{"type":"step_start","part":{}}',
        '{"type":"reasoning","part":{"text":"Hm.","messageID":"m1"}}',
        HELLO,
        f'{{"type":"tool_use","part":{{"callID":"c1","tool":"write","state":{state}}}}}',
        f'{{"type":"tool_use","part":{{"callID":"c2","tool":"bash","state":{bash}}}}}',
        '{"type":"step_finish","part":{"cost":1,"tokens":{"input":5}}}',
    )
    thought, text, write, shell = events
    assert thought == Thought(text="Hm.", message="m1")
    assert text == TextDelta(text="Hello.", message="m1")
    assert isinstance(write, ToolCall) and isinstance(shell, ToolCall)
    assert (write.tool, write.status, write.title) == ("write", "completed", "a.txt")
    assert write.changes == (FileChange(path="a.txt", added=1, removed=0),)
    assert shell.command == Command(command="false", exit=1)
    assert transcript.has_output


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no JSON",
        "[1]",
        "null",
        '{"type":7}',
        '{"type":"text"}',
        '{"type":"text","part":5}',
        '{"type":"tomorrow","part":{}}',
        '{"type":"tool_use","part":{"callID":5}}',
        '{"type":"step_finish","part":{"tokens":"many"}}',
        "[" * 100_000,
        '{"type":"text","part":{"text":"\\ud800"}}',
        "\xff\xfe",
    ],
)
def test_a_line_that_is_not_understood_is_passed_over(line: str) -> None:
    _, events = read(line, HELLO, direct=True)
    assert events[-1] == TextDelta(text="Hello.", message="m1")


def test_opencodes_figures_count_only_where_the_gateway_does_not() -> None:
    line = (
        '{"type":"step_finish","part":{"cost":0.5,"tokens":'
        '{"input":8,"output":9,"reasoning":1,"cache":{"read":2,"write":3}}}}'
    )
    assert read(line)[1] == []
    (report,) = read(line, direct=True)[1]
    assert isinstance(report, UsageReported)
    assert report.usage == Usage(input=8, output=9, reasoning=1, cache_read=2, cache_write=3)
    assert (str(report.cost_usd), report.source) == ("0.5", "opencode")


@pytest.mark.spec("P09")
@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("echo boom >&2; exit 3", WorkerCrashed, "ended with code 3: boom"),
        ("exit 0", NothingSaid, "without a word"),
        ("""echo '{"type":"reasoning","part":{"text":"hm"}}'""", NothingSaid, "without a word"),
        ("kill -9 $$", WorkerCrashed, "ended with code -9"),
        (
            """echo '{"type":"error","error":{"name":"APIError","data":{"message":"no","statusCode":401}}}'""",
            AuthRefused,
            "no (HTTP 401)",
        ),
        (
            """echo '{"type":"error","error":{"name":"APIError","data":{"message":"go-ent: rate_limited: later","statusCode":400}}}'; exit 1""",
            RateLimited,
            "later",
        ),
        (
            """echo '{"type":"error","error":{"name":"UnknownError","data":{"message":"Unexpected server error. Check server logs for details."}}}'
            echo 'level=ERROR run=1 ref=e error="ProviderModelNotFoundError: Model not found: a/\\"b\\"." cause="x"' >&2; exit 1""",
            UnknownModel,
            'Model not found: a/"b".',
        ),
        (
            """echo '{"type":"tool_use","part":{"callID":"c","tool":"write","state":{"status":"error","error":"The user rejected permission to use this specific tool call."}}}'
            printf '\\033[1m! \\033[0mpermission requested: edit (a (1).txt); auto-rejecting\\n' >&2""",
            PermissionDenied,
            "permission 'edit' was refused for 'a (1).txt'",
        ),
    ],
)
async def test_what_failed_is_named_and_what_was_said_is_kept(
    tmp_path: Path, script: str, kind: type[GoentError], said: str
) -> None:
    heard = Heard()
    first = "" if kind is NothingSaid else f"echo '{HELLO}'\n"
    assert await by_script(tmp_path, f"{first}{script}", heard) == "failed"
    (error,) = heard.errors
    assert type(error) is kind and said in str(error)
    assert heard.text == ("Hello." if first else "")


@pytest.mark.spec("P09")
@pytest.mark.parametrize("end", ["", "\\\\", "\\\\u00e", "\\303"])
async def test_an_output_that_stops_in_the_middle_of_a_line_is_no_end(
    tmp_path: Path, end: str
) -> None:
    """OpenCode exits with 0 before a long line has left it."""
    heard = Heard()
    half = '{"type":"text","part":{"messageID":"m","type":"text","text":"One\\\\ntwo' + end
    assert await by_script(tmp_path, f"printf '{half}'", heard) == "failed"
    (error,) = heard.errors
    assert type(error) is ProtocolError and "in the middle of a line" in str(error)
    assert "'acp'" in str(error)
    assert heard.text == "One\ntwo"


async def test_a_subagents_refused_permission_is_told_and_ends_nothing(tmp_path: Path) -> None:
    heard = Heard()
    refused = "echo '! permission requested: bash (make); auto-rejecting' >&2"
    assert await by_script(tmp_path, f"{refused}\necho '{HELLO}'", heard) == "end"
    (notice,) = heard.notices
    assert "'bash' for 'make'" in notice.text


async def test_cancel_ends_one_that_does_not_want_to(tmp_path: Path) -> None:
    heard = Heard()
    script = f"trap '' TERM INT\necho '{HELLO}'\nsetsid sleep 300 &\ntouch ../ready\nsleep 300"
    with anyio.fail_after(30):
        assert await by_script(tmp_path, script, heard, cancel=True) == "cancelled"
    assert heard.text == "Hello."


async def test_an_output_without_end_and_a_child_that_holds_the_pipe(tmp_path: Path) -> None:
    heard = Heard()
    huge = """head -c 3000000 /dev/zero | tr '\\0' x | sed 's/.*/{"type":"text","part":{"text":"&"}}/'"""
    script = f"setsid sleep 300 &\n{huge}\necho\nprintf '%s' '{HELLO}'"
    with anyio.fail_after(40):
        assert await by_script(tmp_path, script, heard) == "end"
    assert len(heard.text) == 3_000_006 and heard.text.endswith("xHello.")


@pytest.mark.spec("P07", "P08")
async def test_the_program_gets_the_prompt_on_its_standard_input(tmp_path: Path) -> None:
    script = f"""cat > ../got; printf '%s\\n' "$@" > ../args
echo "$PWD $OPENCODE_CONFIG_CONTENT" > ../env
echo '{HELLO}'"""
    prompt = "/-\"quoted\" 'x' $HOME `ls` ü\n last  " + "y" * 1_000_000
    assert await by_script(tmp_path, script, Heard(), prompt=prompt) == "end"
    assert (tmp_path / "got").read_text() == prompt
    args = (tmp_path / "args").read_text().splitlines()
    assert args[0] == "run" and {"--format=json", "--model=moonshot/glm-4", "--title=w1"} <= {*args}
    assert not any("quoted" in arg or arg.startswith("--dir") for arg in args)
    pwd, _, content = (tmp_path / "env").read_text().partition(" ")
    assert pwd == str(tmp_path / "opencode-start") and "goent_" in content


@pytest.mark.spec("P08")
async def test_a_configuration_that_is_gone_is_our_error(tmp_path: Path) -> None:
    gone = tmp_path / "gone.json"
    settings = Settings(
        project=tmp_path, opencode=OpenCodeSettings(command="/bin/sh", config_path=gone)
    )

    async with a_gate() as gate:
        driver = OpenCodeRunDriver(
            DriverContext(settings=lambda: settings, environ=dict[str, str], state_dir=tmp_path),
            gate,
            owner=new_owner("scripts"),
        )
        spec = WorkerSpec(id="w1", cwd=tmp_path, provider=GLM, method="cli", rules=())
        with pytest.raises(ConfigError, match=str(gone)):
            async with driver.open(spec):
                pass


async def test_a_silent_one_with_a_command_under_way_is_at_work(tmp_path: Path) -> None:
    env, mark = {"PATH": os.environ["PATH"]}, new_mark(new_owner("scripts"))
    command = "/bin/sh -c 'echo ready; sleep 300'"
    for script, alive in ((f"setsid {command} & wait", True), (f"{command} & wait", False)):
        async with supervised(["/bin/sh", "-c", script], cwd=tmp_path, env=env, mark=mark) as child:
            await child.stdout.receive()  # said by the command itself, in its session by now
            assert (await read_signs(child, "OpenCode")).alive is alive


async def test_one_first_start_at_a_time(tmp_path: Path) -> None:
    database = tmp_path / "data" / "opencode.db"
    inside = anyio.Event()

    async def second() -> None:
        async with first_start(database):
            inside.set()

    async with anyio.create_task_group() as tasks, first_start(database) as done:
        tasks.start_soon(second)
        await anyio.wait_all_tasks_blocked()
        await anyio.sleep(0.3)
        assert not inside.is_set()
        database.touch()
        done()
        with anyio.fail_after(20):
            await inside.wait()
        async with first_start(database), first_start(database):
            pass  # it is made: nobody waits any more


async def test_the_program_knows_no_more_models_than_it_can_use(tmp_path: Path) -> None:
    built_in = """# {id:"anthropic",env:[],name:"A"},{id:"moonshot",env:[],name:"M"}"""
    script = f"{built_in}\ncp $OPENCODE_MODELS_PATH ../known; echo '{HELLO}'"
    assert await by_script(tmp_path, script, Heard()) == "end"
    assert json.loads((tmp_path / "known").read_text()) == {}, "it is set up with none of the two"


def flat(rules: Sequence[PermissionRule]) -> list[PermissionRule]:
    found = list[PermissionRule]()
    for tool, decided in permission_map(rules).items():
        if isinstance(decided, Mapping):
            found += [rule(tool, action, pattern) for pattern, action in decided.items()]
        else:
            found.append(rule(tool, decided))
    return found


def rule(tool: str, action: PermissionAction, pattern: str = "*") -> PermissionRule:
    return PermissionRule(tool=tool, pattern=pattern, action=action)


@pytest.mark.parametrize("preset", PRESET_RULES)
def test_grouped_rules_decide_as_the_ordered_ones_do(preset: Preset) -> None:
    extra = (
        rule("bash", "allow", "git *"),
        rule("bash", "ask", "git push*"),
        rule("edit", "deny", "*.lock"),
        rule("web*", "deny"),
        rule("read", "ask", "secrets/*"),
    )
    for inside, more in product(("", "sub"), ((), extra, (rule("*", "ask"), *extra))):
        rules = rules_for(preset, more, inside)
        for tool, pattern in product(
            ("edit", "bash", "read", "webfetch", "question", "external_directory"),
            ("a", "git x", "git push", "x.lock", "sub/a", "sub/x.lock", "secrets/1"),
        ):
            assert strictest_action(flat(rules), tool, [pattern]) == strictest_action(
                rules, tool, [pattern]
            ), (
                tool,
                pattern,
                rules,
            )


def test_an_order_that_cannot_be_said_is_refused() -> None:
    rules = [rule("edit", "allow"), rule("*", "deny", "*.env"), rule("edit", "ask", "docs/*")]
    with pytest.raises(RequestError, match="put the rules of 'edit' together"):
        permission_map(rules)
    with pytest.raises(RequestError, match="no patterns for the permission 'webfetch'"):
        permission_map([rule("webfetch", "allow", "https://docs*")])
