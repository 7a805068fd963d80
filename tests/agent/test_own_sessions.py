"""What does a session keep, and what does it do about money, windows and providers that fail?"""

from pathlib import Path

import anyio
import pytest
from own_stage import KEY, AgentStage, Editor, a_stage, allow, say

from goent.agent.agent_events import Asked, OptionsChanged, Retitled, Said, ToolCalled, UsageChanged
from goent.agent.agent_ports import AuthRequired, SessionBusy, UnknownSession
from goent.agent.agent_session import SLASH_COMMANDS
from goent.agent.session_records import CUT_OFF_TEXT
from goent.domain.errors import BudgetSpent, GoesOnElsewhere, NoRoute, ProviderDown, RequestError
from goent.domain.types import Usage
from goent.store.ledger_store import SqliteLedger
from goent.system.project_folders import state_dir
from goent.testing.script import Fault, Script, Step, anthropic, call, case, openai
from goent.testing.script import say as says

pytestmark = pytest.mark.anyio

OVERFLOW = Step(
    say="It fits now.",
    fault=Fault(status=400, message="prompt is too long: 250000 tokens > 200000 maximum", times=1),
)
CASES = (
    case(
        "Summarize this conversation",
        says("They greeted each other.", usage=Usage(input=9000, output=20)),
    ),
    case("hello", says("Hello there.", usage=Usage(input=500, output=40))),
    case("a lot", says("So much.", usage=Usage(input=190_000, output=100))),
    case("too long", OVERFLOW),
    case("The user's last prompt:\nand on", says("On it went.")),
    case("read it", call("Read", file_path="notes.txt"), says("It says so.")),
    case("held", says("late").having(gate="held")),
    case("run on", call("Bash", command="sleep 600"), says("never")),
    case(None, says("Whatever you say.")),
)
DOWN = (case("hello", Step(fault=Fault(status=503))),)
SCRIPT = Script(
    providers={
        "anthropic": anthropic(*CASES, models=("claude-haiku", "claude-sonnet"), key=KEY),
        "other": openai(*CASES, models=("glm-4",), key="sk-other-real-key"),
    }
)
FAILING = Script(
    providers={
        "anthropic": anthropic(*DOWN, models=("claude-haiku", "claude-sonnet"), key=KEY),
        "other": openai(*CASES, models=("glm-4",), key="sk-other-real-key"),
    }
)
COMPLEX = (
    "Refactor the scheduler, the store and the protocol across all modules of the code base: redesign "
    "the concurrent transaction handling from scratch and keep it backwards compatible."
)


async def test_a_session_goes_on_in_another_process(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage:
        (stage.project / "notes.txt").write_text("one\n")
        async with stage.session(editor) as session:
            await say(session, "hello")
            await say(session, "read it")
            name = session.id
        async with stage.agent() as agent:
            (kept,), more = await agent.list_page()
            again = await agent.open(editor, name, stage.project)
            told = list(again.history())
            await say(again, "what did I say?")
            asked = stage.models.calls[-1].request
    assert (kept.id, kept.title, kept.cwd) == (name, "hello", str(stage.project))
    assert more is None
    assert [type(event) for event in told] == [Asked, Said, Asked, ToolCalled, Said]
    assert asked
    assert [m.role for m in asked.messages] == [
        *("user", "assistant", "user", "assistant", "tool", "assistant", "user"),
    ]


async def test_a_call_that_a_killed_process_never_finished_is_told_as_cut_off(
    tmp_path: Path,
) -> None:
    editor = Editor()
    async with (
        a_stage(tmp_path, SCRIPT) as stage,
        stage.session(editor) as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(say, session, "run on")
        await editor.until(lambda: bool(editor.asked))
        # As it is on disk in this moment, so it would be after a kill.
        async with stage.agent() as other:
            again = await other.open(Editor(), session.id, stage.project)
            told = [e for e in again.history() if isinstance(e, ToolCalled)]
            assert [(e.status, e.output) for e in told] == [("failed", CUT_OFF_TEXT)]
            await say(again, "go on")
            asked = stage.models.calls[-1].request
        assert asked and CUT_OFF_TEXT in [message.text for message in asked.messages]
        group.cancel_scope.cancel()


async def test_what_is_kept_has_no_keys_in_it(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage:
        async with stage.session(Editor()) as session:
            await say(session, f"is {KEY} a key?")
        asked = stage.models.calls[-1].request
        kept = b"".join(path.read_bytes() for path in state_dir(stage.environ).glob("sessions*"))
    assert asked and KEY in asked.prompt
    assert b"a key?" in kept and KEY.encode() not in kept


async def test_two_processes_cannot_mix_their_words(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(Editor()) as session:
        await say(session, "hello")
        async with stage.agent() as other:
            again = await other.open(Editor(), session.id, stage.project)
            await say(again, "hello")
        with pytest.raises(GoesOnElsewhere, match="another process"):
            await say(session, "hello")


async def test_sessions_are_listed_by_folder_and_page_and_can_be_deleted(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage, stage.agent() as agent:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        first = await agent.new(Editor(), stage.project)
        await agent.new(Editor(), stage.project)  # nothing was asked: no list shows it
        await say(first, "hello")
        assert [s.id for s in (await agent.list_page())[0]] == [first.id]
        assert (await agent.list_page(cwd=str(elsewhere)))[0] == []
        assert (await agent.list_page(cursor="50"))[0] == []
        with pytest.raises(RequestError, match="invalid cursor"):
            await agent.list_page(cursor="x")
        await agent.delete(first.id)
        await agent.delete(first.id)
        assert (await agent.list_page())[0] == []
        with pytest.raises(UnknownSession):
            agent.get(first.id)
        with pytest.raises(UnknownSession):
            await agent.open(Editor(), first.id, stage.project)


async def test_a_prompt_during_a_prompt_is_refused(tmp_path: Path) -> None:
    async with (
        a_stage(tmp_path, SCRIPT) as stage,
        stage.session(Editor()) as session,
        anyio.create_task_group() as group,
    ):
        group.start_soon(say, session, "held")
        await stage.models.at_gate("held")
        assert session.busy
        with pytest.raises(SessionBusy, match="is busy"):
            await say(session, "hello")
        stage.models.open_gate("held")


async def test_a_full_window_is_summed_up_before_the_next_call(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage:
        limited = "  haiku: {provider: anthropic, model: claude-haiku, context_limit: 200000"
        path = stage.project / ".goent" / "providers.yaml"
        text = path.read_text().replace(
            "  haiku: {provider: anthropic, model: claude-haiku", limited
        )
        path.write_text(text)
        async with stage.session(editor) as session:
            await say(session, "a lot")
            assert len(stage.models.calls) == 1
            await say(session, "and on")
            summed, asked = (c.request for c in stage.models.calls[1:])
            again = await say(session, "hello")
        assert len(stage.models.calls) == 4, "once is enough"
    assert summed and "So much." in summed.prompt and not summed.tools
    assert asked and [m.role for m in asked.messages] == ["user"]
    assert "They greeted each other." in asked.prompt and "So much." not in asked.prompt
    assert again.text == "Hello there."
    assert any("summarized" in text for text in editor.notices(session.id))
    used = [e.used for e in editor.told[session.id] if isinstance(e, UsageChanged)]
    assert used[0] > 190_000 and used[-1] < 1000


async def test_a_window_that_overflows_is_summed_up_and_the_call_made_again(
    tmp_path: Path,
) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(Editor()) as session:
        await say(session, "hello")
        end = await say(session, "too long")
        asked = stage.models.calls[-1].request
    assert end.text == "It fits now."
    assert asked and "They greeted each other." in asked.prompt


async def test_another_provider_goes_on_when_the_task_chose_the_model(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, FAILING) as stage, stage.session(editor, model="auto") as session:
        end = await say(session, f"hello. {COMPLEX}")
    assert end.text == "Hello there."
    assert any("sonnet -> spare" in text for text in editor.notices(session.id))


@pytest.mark.usefixtures("soon_asked_again")
async def test_a_model_that_was_asked_for_is_not_swapped(tmp_path: Path) -> None:
    async with (
        a_stage(tmp_path, FAILING) as stage,
        stage.session(Editor(), model="sonnet") as session,
    ):
        with pytest.raises(ProviderDown):
            await say(session, "hello")
        assert {c.provider for c in stage.models.calls} == {"anthropic"}


@pytest.mark.spec("A19", "A20")
@pytest.mark.parametrize(
    ("task", "model"), [("Fix the typo in the title.", "claude-haiku"), (COMPLEX, "claude-sonnet")]
)
async def test_without_a_model_the_task_decides_and_the_session_says_so(
    tmp_path: Path, task: str, model: str
) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor, model="auto") as session:
        await say(session, task)
        asked = stage.models.calls[-1].request
    assert asked and asked.model == model
    assert any(model in text for text in editor.notices(session.id))


async def test_the_task_chooses_only_among_those_that_have_a_key(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage:
        del stage.environ["CLAUDE_KEY"]
        async with stage.session(editor, model="auto") as session:
            await say(session, "Fix the typo in the title.")
        asked = stage.models.calls[-1].request
    assert asked and asked.model == "glm-4"
    assert any("because no provider has a haiku" in text for text in editor.notices(session.id))


@pytest.mark.spec("A14")
@pytest.mark.parametrize(
    ("name", "model"),
    [("haiku", "claude-haiku"), ("sonnet", "claude-sonnet"), ("other/glm-4", "glm-4")],
)
async def test_a_model_that_is_named_is_used(tmp_path: Path, name: str, model: str) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(Editor(), model=name) as session:
        await say(session, COMPLEX)
        asked = stage.models.calls[-1].request
    assert asked and asked.model == model


async def test_mode_and_model_can_be_changed_and_are_kept(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.agent() as agent:
        session = await agent.new(editor, stage.project)
        await session.set_mode("plan")
        await session.set_model("spare")
        for wrong in (session.set_mode("yolo"), session.set_model("gpt-0")):
            with pytest.raises(RequestError):
                await wrong
        await agent.close(session.id)
        again = await agent.open(editor, session.id, stage.project)
    assert (again.options.mode, again.options.model) == ("plan", "spare")
    assert {choice.id for choice in again.options.models} >= {"haiku", "sonnet", "spare"}
    assert any(isinstance(e, OptionsChanged) for e in editor.told[session.id])


async def test_slash_commands_are_for_the_agent(tmp_path: Path) -> None:
    editor = Editor()
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        assert (await say(session, "/compact")).text == "There is nothing to summarize yet."
        await say(session, "hello")
        cost = await say(session, "/cost")
        mode = await say(session, "/mode accept-edits")
        model = await say(session, "/model sonnet")
        await say(session, "/compact")
        assert len(stage.models.calls) == 2, "the greeting and the summary"
        await say(session, "/unknown is for the model")
        assert len(stage.models.calls) == 3
    assert "500 in" in cost.text and "0.0007 USD" in cost.text
    assert session.options.mode == "accept-edits" and "accept-edits" in mode.text
    assert session.options.model == "sonnet" and "sonnet" in model.text
    assert {command.name for command in SLASH_COMMANDS} == {"compact", "cost", "mode", "model"}


async def test_the_ledger_has_what_a_session_spent_and_a_hard_budget_stops_it(
    tmp_path: Path,
) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage:
        stage.configure("budget: {per_day: 0.05, hard: true}\n")
        async with stage.session(Editor()) as session:
            await say(session, "hello")
            rows = await _spent(stage)
            with pytest.raises(BudgetSpent, match="budget"):
                await say(session, "hello " + "word " * 60_000)
            assert len(stage.models.calls) == 1, "the second call never left"
    assert [(key, calls, float(cost)) for key, calls, cost in rows] == [
        (session.id, 1, pytest.approx(0.0007))
    ]


async def _spent(stage: AgentStage) -> list[tuple[str, int, float]]:
    async with SqliteLedger.open(state_dir(stage.environ) / "ledger.db") as ledger:
        rows = await ledger.report(by="worker")
    return [(row.key, row.calls, float(row.cost_usd or 0)) for row in rows]


async def test_without_a_key_a_session_says_what_to_do(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage:
        del stage.environ["CLAUDE_KEY"], stage.environ["OTHER_KEY"]
        async with stage.agent() as agent:
            with pytest.raises(AuthRequired, match="go-ent init"):
                await agent.new(Editor(), stage.project)


async def test_a_model_that_nobody_has_is_refused_by_name(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage, stage.agent(model="gpt-0") as agent:
        with pytest.raises(NoRoute, match="gpt-0"):
            await agent.new(Editor(), stage.project)


async def test_the_project_tells_every_agent_its_wishes(tmp_path: Path) -> None:
    async with a_stage(tmp_path, SCRIPT) as stage:
        (stage.project / ".git").mkdir()
        (stage.project / "AGENTS.md").write_text("Use tabs.")
        below = stage.project / "below"
        below.mkdir()
        (below / "CLAUDE.md").write_text("Here use spaces.")
        async with stage.agent() as agent:
            session = await agent.new(Editor(), below)
            await say(session, "hello")
        asked = stage.models.calls[-1].request
    assert asked and asked.cwd == str(below)
    assert asked.system.index("Use tabs.") < asked.system.index("Here use spaces.")


async def test_the_first_words_are_the_title(tmp_path: Path) -> None:
    editor = Editor(allow)
    async with a_stage(tmp_path, SCRIPT) as stage, stage.session(editor) as session:
        await say(session, "hello   there,\n " + "x" * 200)
    (titled,) = [e for e in editor.told[session.id] if isinstance(e, Retitled)]
    assert titled.title.startswith("hello there, xxx")
    assert len(titled.title) == 80
