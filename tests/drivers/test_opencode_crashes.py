"""What becomes of a worker when OpenCode is killed, stopped or worn out under it?"""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from opencode_stage import ALLOW, ASK, PATIENCE, Heard, Stage, processes, stage

from goent.domain.errors import RequestError, UnknownModel, WorkerCrashed, WorkerError
from goent.domain.ports import TurnStopReason, WorkerSession
from goent.domain.settings import PermissionRule
from goent.domain.types import Prompt, Usage
from goent.opencode.driver import CONTINUE_PROMPT
from goent.opencode.process_care import CarePolicy
from goent.testing.script import Case, Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

GOES_ON = "was interrupted"
OFTEN = CarePolicy(interval=0.2, patience=2.0)
WORK: tuple[Case, ...] = (
    case("say hello", say("Hello from {model}.")),
    case("wait at the gate", say("I waited.").having(gate="door")),
    case("sleep in the shell", call("bash", command="sleep 300 & sleep 300", description="s")),
    case("write asked.txt", call("write", filePath="{cwd}/asked.txt", content="x\n"), say("Ok.")),
    case(
        "leave something behind",
        call(
            "bash",
            command="echo kept > /tmp/note; env -i setsid sleep 605 & sleep 300",
            description="l",
        ),
    ),
    case(
        "look for it",
        call("bash", command="test -e /tmp/note && echo kept || echo gone", description="c"),
        say("Looked."),
    ),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                GOES_ON,
                call("write", filePath="{cwd}/asked.txt", content="y\n"),
                say("I went on."),
            ),
            *WORK,
            models=("glm-4", "kimi-k2"),
            key="sk-moon",
        ),
        "deepseek": openai(
            case(GOES_ON, say("Too late.").having(gate="again")),
            *WORK,
            models=("deepseek-coder",),
            key="sk-deep",
        ),
        "local": openai(
            case(GOES_ON, say("Spent.", usage=Usage(input=30, output=3))),
            case(
                "spend",
                call("bash", command="true", description="t").having(
                    usage=Usage(input=100, output=10)
                ),
                call("bash", command="sleep 300", description="s"),
            ),
            models=("small",),
        ),
    }
)


_others: set[int] = set()  # processes of other tests in the same run, which are left in peace


def acp() -> set[int]:
    return processes("acp") - _others


@pytest.fixture(scope="module")
async def crashing(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Stage]:
    """One stage for all tests here; each leaves a process that works to the next."""
    _others.update(processes("acp"))
    async with stage(SCRIPT, tmp_path_factory.mktemp("crashing")) as built:
        built.care = OFTEN
        yield built


@pytest.fixture
def project(crashing: Stage) -> Path:
    return crashing.settings.project


class Turning:
    """A turn in the background, and how it ended."""

    def __init__(self, session: WorkerSession, text: str) -> None:
        self.heard = Heard()
        self.ended: TurnStopReason | WorkerError | None = None
        self._session = session
        self._text = text

    async def run(self) -> None:
        try:
            self.ended = await self._session.prompt(Prompt(text=self._text), self.heard.emit)
        except WorkerError as error:
            self.ended = error


async def until(true: Callable[[], object]) -> None:
    with anyio.fail_after(PATIENCE):
        while not true():  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.02)


def sleepers(seconds: str) -> list[int]:
    """Who sleeps that long, whatever its environment says."""
    wanted = f"sleep\0{seconds}\0".encode()
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            if path.read_bytes() == wanted:
                found.append(int(path.parent.name))
    return found


def kill(pids: set[int], how: signal.Signals = signal.SIGKILL) -> None:
    assert pids
    for pid in pids:
        os.kill(pid, how)


def told(stage: Stage, session: WorkerSession) -> list[str]:
    """What the user said to the session, as its last model call has it."""
    calls = [call for call in stage.models.calls if call.session == session.token]
    request = calls[-1].request
    assert request
    return [message.text for message in request.messages if message.role == "user"]


def steps_after(stage: Stage, model: str) -> list[int | None]:
    """Which steps a model was asked for after an interruption."""
    calls = [call for call in stage.models.calls if call.case == GOES_ON and call.request]
    return [call.step for call in calls if call.request and call.request.model == model]


@pytest.mark.spec("P02", "P06", "P29")
async def test_a_killed_process_is_swept_and_its_turns_go_on_in_another(
    crashing: Stage, project: Path
) -> None:
    async with (
        crashing.driver.open(crashing.spec(project)) as first,
        crashing.driver.open(crashing.spec(project, "kimi")) as second,
        crashing.driver.open(crashing.spec(project)) as idle,
    ):
        await idle.prompt(Prompt(text="say hello"), Heard().emit)
        tokens = [first.token, second.token, idle.token]
        (pid,) = killed = acp()
        in_shell, at_gate = (
            Turning(first, "sleep in the shell"),
            Turning(second, "wait at the gate"),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_shell.run)
            tasks.start_soon(at_gate.run)
            await crashing.models.at_gate("door", timeout=PATIENCE)
            await until(lambda: processes("300"))
            kill(killed)
        assert not processes("300")
        for turning, model in ((in_shell, "glm-4"), (at_gate, "kimi-k2")):
            assert turning.ended == "end"
            assert turning.heard.text == "I went on."
            (notice,) = turning.heard.notices
            ending = f"OpenCode (pid {pid}) ended with code -9"
            assert notice.text == f"{ending}; the session continues in another process"
            assert steps_after(crashing, model) == [0, 1]
        (cut,) = [t for t in in_shell.heard.ended_tools if t.tool == "bash"]
        assert cut.status == "failed"
        assert "may or may not have taken effect" in cut.output

        heard = Heard()
        await idle.prompt(Prompt(text="2: say hello"), heard.emit)
        assert (heard.text, heard.notices) == ("Hello from glm-4.", [])
        assert told(crashing, idle) == ["say hello", "2: say hello"]
        await first.prompt(Prompt(text="3: say hello"), Heard().emit)
        assert told(crashing, first) == ["sleep in the shell", CONTINUE_PROMPT.text, "3: say hello"]
        assert len(acp()) == 1
        assert [first.token, second.token, idle.token] == tokens


@pytest.mark.spec("P02", "P29")
async def test_what_cleared_its_environment_is_swept_and_temporary_files_go_with_the_process(
    crashing: Stage, project: Path
) -> None:
    """It is known by the mounts of its sandbox; and `/tmp` in there is the process's own."""
    rules = (*ALLOW, PermissionRule(tool="external_directory", action="allow"))
    async with crashing.driver.open(crashing.spec(project, rules=rules)) as session:
        turning = Turning(session, "leave something behind")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: sleepers("605") and processes("300"))
            assert not processes("605"), "its environment says nothing"
            kill(acp())
        assert turning.heard.text == "I went on."
        assert sleepers("605") == []
        heard = Heard()
        await session.prompt(Prompt(text="look for it"), heard.emit)
        (looked,) = heard.ended_tools
        assert looked.output.split()[-1] == "gone"
    (folder,) = (crashing.folder / "state" / "tmp").iterdir()
    assert list(folder.rglob("note")) == [], "that of the lost process is removed"


@pytest.mark.spec("P29")
async def test_a_second_crash_in_one_turn_fails_it(crashing: Stage, project: Path) -> None:
    async with crashing.driver.open(crashing.spec(project, "deepseek")) as session:
        turning = Turning(session, "sleep in the shell")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: processes("300"))
            kill(acp())
            await crashing.models.at_gate("again", timeout=PATIENCE)
            kill(acp())
        assert isinstance(turning.ended, WorkerCrashed)
        assert "two processes were lost in one turn" in str(turning.ended)
        assert turning.ended.returncode == -signal.SIGKILL
        assert len(turning.heard.notices) == 1


@pytest.mark.spec("P29")
async def test_a_prompt_that_has_not_reached_the_session_is_sent_there_for_the_first_time(
    crashing: Stage, project: Path
) -> None:
    """And a session that is being opened when its process ends is opened in the next one."""
    (project / "AGENTS.md").write_text("Mind the gap.\n")
    heard = Heard()

    async def spawn() -> None:
        async with crashing.driver.open(crashing.spec(project)) as session:
            await session.prompt(Prompt(text="say hello"), heard.emit)

    async with (
        crashing.driver.open(crashing.spec(project)) as new,
        crashing.driver.open(crashing.spec(project)) as old,
    ):
        await old.prompt(Prompt(text="say hello"), Heard().emit)
        turns = [Turning(session, "say hello") for session in (new, old)]
        async with anyio.create_task_group() as tasks:
            stopped = acp()
            kill(stopped, signal.SIGSTOP)
            for turning in turns:
                tasks.start_soon(turning.run)
            tasks.start_soon(spawn)
            await anyio.wait_all_tasks_blocked()
            kill(stopped)
        for session, turning, times in zip((new, old), turns, (1, 2), strict=True):
            assert (turning.ended, turning.heard.text) == ("end", "Hello from glm-4.")
            assert len(turning.heard.notices) == 1
            said = told(crashing, session)
            assert ["say hello" in text for text in said] == [True] * times
            assert ["Mind the gap." in text for text in said] == [True, False][:times]
    assert (heard.text, heard.notices) == ("Hello from glm-4.", [])
    (project / "AGENTS.md").unlink()


@pytest.mark.spec("P06")
async def test_a_cancelled_turn_is_not_continued(crashing: Stage, project: Path) -> None:
    async with crashing.driver.open(crashing.spec(project)) as session:
        turning = Turning(session, "sleep in the shell")
        calls = len(crashing.models.calls)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: processes("300"))
            kill(acp(), signal.SIGSTOP)  # so that it cannot obey
            tasks.start_soon(session.cancel)
            await anyio.lowlevel.checkpoint()
            kill(acp())
        assert (turning.ended, turning.heard.notices) == ("cancelled", [])
        assert len(crashing.models.calls) == calls + 1
        heard = Heard()
        await session.prompt(Prompt(text="say hello"), heard.emit)
        assert heard.text == "Hello from glm-4."


@pytest.mark.spec("P29")
async def test_what_is_asked_again_and_what_was_granted_holds_in_another_process(
    crashing: Stage, project: Path
) -> None:
    async with crashing.driver.open(crashing.spec(project, rules=ASK)) as session:
        turning = Turning(session, "write asked.txt")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            lost = await turning.heard.question()
            kill(acp())
            anew = await turning.heard.question(2)
            assert (lost.id, anew.id) == ("p1", "p2")
            assert [gone.id for gone in turning.heard.withdrawn] == [lost.id]
            with pytest.raises(RequestError, match=r"no question 'p1' is open; open: 'p2'"):
                await session.answer(lost.id, "reject")
            await session.answer(anew.id, "allow_always")
        assert turning.heard.text == "I went on."
        kill(acp())
        await until(lambda: not acp())
        again = Heard()
        await session.prompt(Prompt(text="write asked.txt"), again.emit)
        assert (again.text, again.questions) == ("Ok.", [])


async def test_usage_that_opencode_tells_is_not_lost_with_a_process(
    crashing: Stage, project: Path
) -> None:
    """All but that of the interrupted step, which OpenCode writes down at its end."""
    async with crashing.driver.open(crashing.spec(project, "local")) as session:
        turning = Turning(session, "spend")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: processes("300"))
            kill(acp())
    assert turning.heard.text == "Spent."
    spent = sum((report.usage for report in turning.heard.usage), Usage())
    assert spent == Usage(input=130, output=13)


@pytest.mark.spec("P02")
async def test_a_dedicated_worker_gets_another_process_of_its_own(
    crashing: Stage, project: Path
) -> None:
    async with crashing.driver.open(crashing.spec(project)) as neighbour:
        await neighbour.prompt(Prompt(text="say hello"), Heard().emit)
        shared = acp()
        async with crashing.driver.open(crashing.spec(project, dedicated=True)) as session:
            turning = Turning(session, "sleep in the shell")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turning.run)
                await until(lambda: processes("300"))
                kill(acp() - shared)
            assert turning.heard.text == "I went on."
            assert len(acp() - shared) == 1
        assert acp() == shared


@pytest.mark.spec("P29")
async def test_a_session_is_resumed_by_its_token_without_its_history_as_events(
    crashing: Stage, project: Path
) -> None:
    async with crashing.driver.open(crashing.spec(project)) as earlier:
        await earlier.prompt(Prompt(text="say hello"), Heard().emit)
        token = earlier.token
    spec = replace(crashing.spec(project, "kimi", rules=ASK, resume=token), asked=4)
    async with crashing.driver.open(spec) as session:
        assert session.token == token
        heard = Heard()
        await session.prompt(Prompt(text="2: say hello"), heard.emit)
        assert heard.text == "Hello from kimi-k2."
        assert told(crashing, session) == ["say hello", "2: say hello"]
        assert crashing.calls[-1].worker == spec.id
        asked = Turning(session, "write asked.txt")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(asked.run)
            question = await asked.heard.question()
            assert question.id == "p5", "the first four were asked before"
            await session.answer(question.id, "allow_once")
        assert asked.heard.text == "Ok."


async def test_a_token_that_opencode_does_not_know_is_refused(
    crashing: Stage, project: Path
) -> None:
    with pytest.raises(WorkerError, match="has no session 'ses_unknown'"):
        async with crashing.driver.open(crashing.spec(project, resume="ses_unknown")):
            pass


async def test_a_session_that_cannot_go_on_elsewhere_says_both_reasons(
    crashing: Stage, project: Path
) -> None:
    known = crashing.settings.providers
    async with crashing.driver.open(crashing.spec(project)) as session:
        await session.prompt(Prompt(text="say hello"), Heard().emit)
        kill(acp())
        crashing.use(providers=tuple(p for p in known if p.name != "glm"))
        try:
            with pytest.raises(
                WorkerCrashed, match=r"(?s)ended with code -9.*no model 'moonshot/glm-4'"
            ) as caught:
                await session.prompt(Prompt(text="say hello"), Heard().emit)
        finally:
            crashing.use(providers=known)
    assert isinstance(caught.value.__cause__, UnknownModel)


@pytest.mark.spec("P29")
async def test_a_process_that_answers_nobody_is_ended_and_left(
    crashing: Stage, project: Path
) -> None:
    async with crashing.driver.open(crashing.spec(project)) as session:
        await session.prompt(Prompt(text="say hello"), Heard().emit)
        turning = Turning(session, "sleep in the shell")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: processes("300"))
            kill(acp(), signal.SIGSTOP)
            crashing.care = CarePolicy(interval=0.2, patience=0.3)
            await until(lambda: turning.heard.notices)
            crashing.care = OFTEN
        assert turning.heard.text == "I went on."
        assert "did not answer 3 times in a row and was killed" in turning.heard.notices[0].text


async def test_a_worn_process_is_left_when_idle_and_retired_after_its_last_turn(
    crashing: Stage, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with (
        crashing.driver.open(crashing.spec(project)) as busy,
        crashing.driver.open(crashing.spec(project)) as idle,
    ):
        await idle.prompt(Prompt(text="say hello"), Heard().emit)
        worn = acp()
        turning = Turning(busy, "sleep in the shell")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turning.run)
            await until(lambda: processes("300"))
            crashing.care = CarePolicy(interval=0.2, memory=1)
            await until(lambda: "takes no further work because of its" in caplog.text)
            crashing.care = OFTEN
            heard = Heard()
            await idle.prompt(Prompt(text="2: say hello"), heard.emit)
            assert (heard.text, heard.notices) == ("Hello from glm-4.", [])
            assert told(crashing, idle) == ["say hello", "2: say hello"]
            assert worn < acp()
            await busy.cancel()
        assert (turning.ended, turning.heard.notices) == ("cancelled", [])
        await until(lambda: not worn & acp())
        await busy.prompt(Prompt(text="3: say hello"), Heard().emit)
        assert told(crashing, busy) == ["sleep in the shell", "3: say hello"]
        assert len(acp()) == 1
