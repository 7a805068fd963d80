"""What does a turn of the agent do: speak, use tools, ask first, stop when it is told to?"""

from pathlib import Path

import anyio
import pytest
from own_stage import KEY, Editor, a_stage, allow, reject, say

from goent.agent.agent_events import PlanChanged, Said, StateChanged, ToolCalled, UsageChanged
from goent.agent.agent_session import TurnEnd
from goent.agent.tool_runner import (
    IDENTICAL_CALLS_TO_STOP,
    MAX_IDENTICAL_CALLS,
    NO_ANSWER_TEXT,
    REFUSED_TEXT,
)
from goent.domain.errors import WorkerError
from goent.domain.types import Usage
from goent.testing.script import (
    Fault,
    Script,
    ScriptedToolUse,
    Step,
    anthropic,
    call,
    case,
    fail,
    openai,
)
from goent.testing.script import say as says

pytestmark = pytest.mark.anyio

CASES = (
    case("hello", says("Hello there.", think="a greeting", usage=Usage(input=500, output=40))),
    case("read it", call("Read", file_path="notes.txt"), says("It says so.")),
    case("write it", call("Write", file_path="new.txt", content="fresh\n"), says("Written.")),
    case("run it", call("Bash", command="echo $CLAUDE_KEY ran > out.txt"), says("Ran.")),
    case("peek", call("Bash", command="cat /proc/$PPID/environ"), says("Peeked.")),
    case(
        "plan it",
        call("TodoWrite", todos=[{"content": "first", "status": "in_progress"}]),
        says("Ok."),
    ),
    case(
        "read both",
        Step(
            calls=(
                ScriptedToolUse(tool="Read", input={"file_path": "notes.txt"}),
                ScriptedToolUse(tool="Read", input={"file_path": "other.txt"}),
            )
        ),
        says("Both."),
    ),
    case(
        "read and edit",
        Step(
            calls=(
                ScriptedToolUse(tool="Read", input={"file_path": "notes.txt"}),
                ScriptedToolUse(
                    tool="Edit",
                    input={"file_path": "notes.txt", "old_string": "one", "new_string": "two"},
                ),
            )
        ),
        says("Edited."),
    ),
    case("no such tool", call("Fly", where="up"), says("I cannot fly.")),
    case("circles", *(call("Read", file_path="notes.txt") for _ in range(12))),
    case(
        "round and round and one more",
        *(call("Read", file_path="notes.txt") for _ in range(MAX_IDENTICAL_CALLS)),
        Step(
            calls=(
                ScriptedToolUse(tool="Read", input={"file_path": "notes.txt"}),
                ScriptedToolUse(tool="Read", input={"file_path": "other.txt"}),
            )
        ),
        says("Done."),
    ),
    case("break off", says("Half a sent").having(chunk=4, fault=Fault(kind="error", after=2))),
    case("slow words", says("One two three four five.").having(pace=0.05, chunk=4)),
    case("slow command", call("Bash", command="sleep 600"), says("never")),
    case("held", says("late").having(gate="held")),
    case("refuse", says("No.").having(stop="content_filter")),
    case("cut short", says("It was a dark and").having(stop="length")),
    case("nothing", says("")),
    case("broken", fail(400)),
)
SCRIPT = Script(
    providers={
        "anthropic": anthropic(*CASES, models=("claude-haiku", "claude-sonnet"), key=KEY),
        "other": openai(*CASES, models=("glm-4",), key="sk-other-real-key"),
    }
)


async def test_it_speaks_and_its_tokens_are_counted(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        end = await say(session, "hello")
        told = editor.told[session.id]
    assert (end.stop_reason, end.text) == ("end_turn", "Hello there.")
    assert editor.text(session.id) == "Hello there."
    assert (end.usage.input, end.usage.output) == (500, 40)
    assert end.cost_usd is not None and float(end.cost_usd) == pytest.approx(0.0007)
    usage = next(event for event in told if isinstance(event, UsageChanged))
    assert (usage.used, usage.cost_usd) == (540, end.cost_usd)
    assert [e.state for e in told if isinstance(e, StateChanged)] == ["running", "idle"]


async def test_reading_needs_no_leave_and_the_model_sees_what_was_read(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        (stage.project / "notes.txt").write_text("the secret of the tide\n")
        end = await say(session, "read it")
        last = stage.models.calls[-1].request
    assert end.stop_reason == "end_turn"
    assert not editor.asked
    assert last and "the secret of the tide" in last.messages[-1].text
    states = [event.status for event in editor.calls(session.id).popitem()[1]]
    assert states == ["pending", "running", "completed"]


@pytest.mark.spec("A09")
async def test_what_changes_something_is_asked_before_it_is_done(tmp_path: Path) -> None:
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        await say(session, "write it")
        written = (stage.project / "new.txt").read_text()
        await say(session, "run it")
        ran = (stage.project / "out.txt").read_text()
    assert written == "fresh\n"
    assert ran == "ran\n", "a command sees no key"
    assert [(q.tool, q.need.permission) for q in editor.asked] == [
        ("Write", "edit"),
        ("Bash", "bash"),
    ]


async def test_a_command_cannot_look_into_the_agent_itself(tmp_path: Path) -> None:
    """There the keys are."""
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        await say(session, "peek")
    (end,) = editor.ends(session.id)
    assert "Permission denied" in end.output


@pytest.mark.spec("A10")
async def test_what_is_refused_is_not_done_and_the_model_goes_on(tmp_path: Path) -> None:
    editor = Editor(reject)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        end = await say(session, "write it")
        last = stage.models.calls[-1].request
        there = (stage.project / "new.txt").exists()
    assert not there
    assert (end.stop_reason, end.text) == ("end_turn", "Written.")
    assert last and last.messages[-1].text == REFUSED_TEXT
    assert editor.ends(session.id)[0].status == "failed"


async def test_no_answer_in_time_is_a_no(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage:
        stage.configure("permissions: {timeout_s: 1}\n")
        async with stage.session(editor) as session:
            await say(session, "write it")
            last = stage.models.calls[-1].request
        assert not (stage.project / "new.txt").exists()
    assert last and last.messages[-1].text == NO_ANSWER_TEXT


async def test_an_always_holds_for_the_session(tmp_path: Path) -> None:
    editor = Editor(lambda _: "allow_always")
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        await say(session, "write it")
        await say(session, "read and edit")
    assert len(editor.asked) == 1


@pytest.mark.parametrize(
    ("mode", "asked", "done"),
    [("ask", 1, True), ("accept-edits", 0, True), ("plan", 0, False)],
)
async def test_the_mode_says_what_is_asked(
    tmp_path: Path, mode: str, asked: int, *, done: bool
) -> None:
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor, mode=mode) as session:
        await say(session, "write it")
        assert (stage.project / "new.txt").exists() is done
    assert len(editor.asked) == asked


@pytest.mark.spec("A15")
async def test_a_tool_that_is_not_allowed_is_neither_offered_nor_run(tmp_path: Path) -> None:
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage:
        async with stage.agent(tools=["Read", "Grep"]) as agent:
            session = await agent.new(editor, stage.project)
            await say(session, "write it")
        first, last = stage.models.calls[0].request, stage.models.calls[-1].request
        assert not (stage.project / "new.txt").exists()
    assert first and first.tools == ("Read", "Grep")
    assert last and "There is no tool 'Write'" in last.messages[-1].text
    assert not editor.asked


async def test_calls_that_only_look_go_side_by_side_and_a_change_waits_for_them(
    tmp_path: Path,
) -> None:
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        (stage.project / "notes.txt").write_text("one\n")
        (stage.project / "other.txt").write_text("other\n")
        await say(session, "read both")
        await say(session, "read and edit")
        assert (stage.project / "notes.txt").read_text() == "two\n"
    assert [end.status for end in editor.ends(session.id)] == ["completed"] * 4
    told = [e for e in editor.told[session.id] if isinstance(e, ToolCalled)]
    assert [e.status for e in told[:4]] == ["pending", "pending", "running", "running"]


async def test_the_plan_is_shown(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        await say(session, "plan it")
    (plan,) = [e for e in editor.told[session.id] if isinstance(e, PlanChanged)]
    assert [(entry.text, entry.status) for entry in plan.entries] == [("first", "in_progress")]


async def test_a_tool_that_does_not_exist_is_told_to_the_model(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        end = await say(session, "no such tool")
        last = stage.models.calls[-1].request
    assert end.text == "I cannot fly."
    assert last and "There is no tool 'Fly'" in last.messages[-1].text


async def test_a_model_that_goes_in_circles_is_stopped(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        (stage.project / "notes.txt").write_text("one\n")
        end = await say(session, "circles")
        assert len(stage.models.calls) == IDENTICAL_CALLS_TO_STOP
    assert end.stop_reason == "max_turn_requests"
    ends = editor.ends(session.id)
    assert [e.status for e in ends] == ["completed"] * MAX_IDENTICAL_CALLS + ["failed"] * (
        IDENTICAL_CALLS_TO_STOP - MAX_IDENTICAL_CALLS
    )


async def test_another_call_beside_a_repeated_one_is_made(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        for name in ("notes.txt", "other.txt"):
            (stage.project / name).write_text("one\n")
        end = await say(session, "round and round and one more")
    assert end.text == "Done."
    statuses = [event.status for event in editor.ends(session.id)]
    assert statuses == ["completed"] * MAX_IDENTICAL_CALLS + ["failed", "completed"]


@pytest.mark.spec("A12")
@pytest.mark.usefixtures("soon_asked_again")
async def test_what_was_said_before_a_provider_failed_is_kept(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        with pytest.raises(WorkerError):
            await say(session, "break off")
        told = [event.text for event in session.history() if isinstance(event, Said)]
    assert "".join(told) == editor.text(session.id) != ""


@pytest.mark.spec("A08")
async def test_a_cancel_in_the_middle_of_words_keeps_them(tmp_path: Path) -> None:
    editor, ends = Editor(), list[TurnEnd]()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:

        async def speak() -> None:
            ends.append(await say(session, "slow words"))

        async with anyio.create_task_group() as group:
            group.start_soon(speak)
            await editor.until(lambda: len(editor.text(session.id)) >= 4)
            session.cancel()
        (end,) = ends
        assert end.stop_reason == "cancelled"
        assert end.text and "One two three four five.".startswith(end.text)
        assert (await say(session, "hello")).stop_reason == "end_turn", "it can be used again"
        asked = stage.models.calls[-1].request
    assert asked and asked.messages[1].text.strip() == end.text.strip()


async def test_a_cancel_ends_the_running_command_and_what_waits_for_an_answer(
    tmp_path: Path,
) -> None:
    for decide in (allow, None):
        folder = tmp_path / str(decide is None)
        editor = Editor(decide)
        async with a_stage(folder, SCRIPT) as stage, stage.session(editor) as session:
            async with anyio.create_task_group() as group:
                group.start_soon(say, session, "slow command")
                await editor.until(lambda editor=editor: bool(editor.asked))
                if decide:
                    await editor.until(
                        lambda editor=editor, session=session: any(
                            e.status == "running" for e in editor.ends(session.id)
                        )
                    )
                session.cancel()
            (end,) = editor.ends(session.id)
            assert end.status == "failed" and "cancelled" in end.output
            assert (await say(session, "hello")).stop_reason == "end_turn"


@pytest.mark.parametrize(("prompt", "reason"), [("refuse", "refusal"), ("cut short", "max_tokens")])
async def test_why_a_model_stopped_is_told(tmp_path: Path, prompt: str, reason: str) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        assert (await say(session, prompt)).stop_reason == reason
