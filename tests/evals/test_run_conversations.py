"""Cases of several turns: what each target is told, how turns are graded, and what is kept of them."""

import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from eval_desk import EvalDesk, interrupted
from msgspec.structs import replace
from run_stage import Scripted, Stage, case, graded, says, suite

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import (
    AttemptObserver,
    CaseAttempt,
    EvalTarget,
    SilentObserver,
    TargetError,
)
from goent.evals.eval_results import CaseGrade, Grade, Row
from goent.evals.graders.case_grader import conversation_grade
from goent.evals.runner.open_targets import OpenTargets
from goent.evals.runner.trial_plan import RunSelection, plan_trials
from goent.evals.runner.trial_runner import grade_trial
from goent.evals.suites import (
    CaseConversation,
    CaseTurn,
    EvalCase,
    GraderSpec,
    InputMessage,
    Retry,
    TargetSpec,
    prompt_text,
)
from goent.evals.traces import Trace, TracedMessage, TracedTurn, TraceWorker


def turn(text: str, wants: str = "", **more: object) -> CaseTurn:
    wanted = GraderSpec(type="contains", name=wants, settings={"value": wants}, **more)  # pyright: ignore[reportArgumentType] (its fields)
    said = (InputMessage(role="user", text=text),)
    return CaseTurn(input=said, graders=(wanted,) if wants else ())


def talk(*turns: CaseTurn, wants: str = "", **more: object) -> EvalCase:
    plain = case("talk", wants=wants)
    return replace(
        plain,
        input=(InputMessage(role="system", text="Be brief."),),
        graders=plain.graders if wants else (),
        conversation=CaseConversation(turns=turns, **more),  # pyright: ignore[reportArgumentType] (its fields)
    )


async def echo(attempt: CaseAttempt, _witness: AttemptObserver) -> Trace:
    """Says how much it was told, and the last of it."""
    said = attempt.case.input
    return says(f"{len(said)}: {said[-1].text}", cost_usd=0.5)


async def made(
    tmp_path: Path, one: EvalCase, target: EvalTarget | None = None
) -> tuple[Row, Trace]:
    stage = Stage(tmp_path / "out", {"one": target or Scripted(echo)})
    await stage.run([suite(one)])
    (row,) = stage.watched.rows
    return row, msgspec.json.decode((tmp_path / "out" / row.trace_path).read_bytes(), type=Trace)


def scores(row: Row) -> list[tuple[str, float, str]]:
    return [(score.name, score.score, score.verdict) for score in row.scores]


@pytest.mark.anyio
async def test_who_remembers_nothing_is_told_all_that_was_said(tmp_path: Path) -> None:
    target = Scripted(echo)
    row, trace = await made(tmp_path, talk(turn("one", "2: one"), turn("two", "4: two")), target)

    assert prompt_text(target.asked[1].case) == (
        "[system]\nBe brief.\n\n[user]\none\n\n[assistant]\n2: one\n\n[user]\ntwo"
    )
    assert [attempt.case.id for attempt in target.asked] == ["talk/turn-1", "talk/turn-2"]
    assert scores(row) == [("turn-1", 1.0, "pass"), ("turn-2", 1.0, "pass")]
    assert (row.execution_status, row.cost_usd) == ("ok", 1.0)
    assert (
        trace.answer
        == "system: Be brief.\n\nuser: one\n\nassistant: 2: one\n\nuser: two\n\nassistant: 4: two"
    )
    assert [trace.turn(number).answer for number in (0, 1)] == ["2: one", "4: two"]


@pytest.mark.anyio
async def test_a_window_keeps_the_last_exchanges_and_the_systems_words(tmp_path: Path) -> None:
    target = Scripted(echo)
    turns = (turn(text, text) for text in ("one", "two", "three"))
    await made(tmp_path, talk(*turns, window=1), target)

    told = [[said.text for said in attempt.case.input] for attempt in target.asked]
    assert told[2] == ["Be brief.", "3: two", "three"]


@pytest.mark.anyio
@pytest.mark.parametrize(("how", "score"), [("mean", 0.5), ("min", 0.0), ("max", 1.0)])
async def test_turns_and_the_whole_become_one_score(tmp_path: Path, how: str, score: float) -> None:
    turns = (turn("one", "one"), turn("nobody grades this"), turn("three", "never"))
    row, _ = await made(tmp_path, talk(*turns, wants="user: one", aggregation=how))

    verdicts = [verdict for _, _, verdict in scores(row)]
    assert verdicts == ["pass", "skip", "fail", "pass"]
    assert row.score == pytest.approx(2 / 3 if how == "mean" else score)


@pytest.mark.anyio
async def test_a_turn_that_fails_may_stop_the_conversation(tmp_path: Path) -> None:
    target = Scripted(echo)
    turns = (turn("one", "one"), turn("two", "never"), turn("three", "three"))
    row, trace = await made(tmp_path, talk(*turns, on_failure="stop"), target)

    assert len(target.asked) == len(trace.turns) == 2
    assert scores(row)[1:] == [("turn-2", 0.0, "fail"), ("turn-3", 0.0, "fail")]
    assert row.score == pytest.approx(1 / 3)
    assert "on_turn_failure" in (tmp_path / "out" / row.grades_path).read_text()


@pytest.mark.anyio
async def test_a_required_grader_of_the_whole_fails_it(tmp_path: Path) -> None:
    needed = talk(turn("one", "one"), turn("two", "two"))
    grader = GraderSpec(type="contains", name="n", settings={"value": "never"}, required=True)
    row, _ = await made(tmp_path, replace(needed, graders=(grader,)))

    assert (row.score, row.execution_status) == (0.0, "quality_failure")


def test_what_a_required_grader_has_decided_no_judge_is_needed_for() -> None:
    """As for a case of one turn."""
    conversation = CaseConversation(turns=(turn("a", "a"),))
    unasked = CaseGrade(score=0.0, status="execution_error", error="the judge is away")
    spoilt = CaseGrade(score=0.0, status="quality_failure", spoilt=True)
    good = CaseGrade(score=1.0, status="ok")

    failed = conversation_grade(conversation, [unasked], spoilt, threshold=0.8, compat=False)
    open_ = conversation_grade(conversation, [unasked], good, threshold=0.8, compat=False)

    assert (failed.status, failed.error) == ("quality_failure", None)
    assert (open_.status, open_.error) == ("execution_error", "the judge is away")


ANN, BEN = (
    TraceWorker(provider=name, backend="b", model="m", method="api") for name in ("ann", "ben")
)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("workers", "by"),
    [((ANN, ANN), ANN), ((None, ANN), None), ((ANN, None), None), ((ANN, BEN), None)],
)
async def test_a_conversation_is_of_the_provider_that_made_every_turn(
    tmp_path: Path, workers: tuple[TraceWorker | None, ...], by: TraceWorker | None
) -> None:
    left = iter(workers)

    async def works(attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        return replace(await echo(attempt, witness), by=next(left))

    _, trace = await made(tmp_path, talk(turn("one", "one"), turn("two", "two")), Scripted(works))

    assert trace.by == by


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("turns", "on_failure", "made_turns", "lacks"),
    [
        ((turn("a", "a"), turn("b", "b")), "continue", 1, "2"),
        ((turn("a", "a"), turn("b", "b")), "stop", 1, "2"),
        ((turn("a", "never"), turn("b", "b")), "continue", 1, "2"),
        ((turn("a", "never"), turn("b", "b")), "stop", 1, ""),
        ((turn("a"), turn("b", "b")), "stop", 1, "2"),
        ((turn("a"), turn("b")), "stop", 1, ""),
        ((turn("a", "never"),), "stop", 0, "1"),
        ((turn("a", "a"), turn("b", "b")), "stop", 3, ""),
    ],
)
async def test_a_trace_without_a_turn_that_should_be_there_cannot_be_graded(
    turns: tuple[CaseTurn, ...], on_failure: str, made_turns: int, lacks: str
) -> None:
    """Graders given by hand take those of the turns away: then a conversation may have stopped anywhere."""
    one = talk(*turns, wants="a", on_failure=on_failure)
    (trial,) = plan_trials(
        [suite(one)], {"one": TargetSpec(name="one", kind="mock")}, RunSelection()
    )
    trace = Trace(
        messages=(TracedMessage(role="assistant", content="a and b"),) * 3,
        turns=tuple(TracedTurn(begins=at, answers=at) for at in range(made_turns)),
    )

    came_to = await grade_trial(graded, trial, trace)

    said = f"its trace has no turn {lacks}: run it again" if lacks else None
    assert came_to.error == said
    assert (came_to.status == "execution_error") == bool(lacks)


def test_agentv_counts_turns_that_nobody_grades_and_leaves_out_those_not_reached() -> None:
    conversation = CaseConversation(turns=(turn("a"), turn("b", "b"), turn("c", "c")))
    grade = Grade(name="b", type="contains", score=0.0, verdict="fail")
    failed = CaseGrade(score=0.0, status="quality_failure", grades=(grade,), spoilt=True)

    ours = conversation_grade(conversation, [None, failed], failed, threshold=0.8, compat=False)
    theirs = conversation_grade(conversation, [None, failed], failed, threshold=0.8, compat=True)

    assert [one.verdict for one in ours.grades] == ["skip", "fail", "fail", "fail"]
    assert [one.verdict for one in theirs.grades] == ["pass", "fail", "skip", "fail"]
    assert (ours.score, theirs.score) == (0.0, 0.25)
    assert (ours.spoilt, theirs.spoilt) == (True, False)


@pytest.mark.anyio
async def test_a_turn_that_cannot_be_had_fails_the_attempt_and_all_is_tried_again(
    tmp_path: Path,
) -> None:
    async def shaky(attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        if attempt.case.id.endswith("turn-2") and attempt.number == 0:
            raise TargetError("overloaded", "come again", retryable=True)
        return await echo(attempt, witness)

    target = Scripted(shaky)
    stage = Stage(tmp_path / "out", {"one": target})
    again = TargetSpec(name="one", kind="mock", retry=Retry(initial_delay_s=0.01))
    await stage.run([suite(talk(turn("one", "one"), turn("two", "two")))], specs=[again])

    (row,) = stage.watched.rows
    assert (row.execution_status, row.attempt, row.cost_usd) == ("ok", 1, 1.5)
    assert [attempt.case.id[-1] for attempt in target.asked] == ["1", "2", "1", "2"]
    first = msgspec.json.decode((tmp_path / "out/talk/attempt-0.json").read_bytes(), type=Trace)
    assert [said.content for said in first.messages] == ["Be brief.", "one", "2: one", "two"]
    assert [turn.begins for turn in first.turns] == [0], "the one that was over"
    assert (first.partial, len(first.turns)) == (True, 1)


class Remembers(Scripted):
    """A target that is one conversation's at a time."""

    talks = 0

    @asynccontextmanager
    async def conversation(self, attempt: CaseAttempt) -> AsyncGenerator[EvalTarget]:
        self.talks += 1
        yield self


@pytest.mark.anyio
async def test_who_remembers_is_told_what_is_new_in_one_conversation(tmp_path: Path) -> None:
    async def tells(attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        trace = await echo(attempt, witness)
        witness.message(0, trace.messages[0])
        witness.usage_changed(None, 0.25)
        return trace

    target = Remembers(tells)
    _, trace = await made(tmp_path, talk(turn("one", "one"), turn("two", "two")), target)

    assert target.talks == 1
    assert [said.content for said in trace.messages if said.role == "assistant"] == [
        "2: one",
        "1: two",
    ]


@pytest.mark.anyio
async def test_between_two_turns_the_target_may_judge(tmp_path: Path) -> None:
    @asynccontextmanager
    async def open_target(_spec: TargetSpec) -> AsyncGenerator[EvalTarget]:
        yield Scripted(echo)

    spec = TargetSpec(name="one", kind="mock")
    attempt = CaseAttempt(case=case("a"), target="one", cwd=tmp_path)
    async with (
        OpenTargets.open([spec], open_target, {"one": 1}) as opened,
        opened.open_conversation(attempt) as partner,
    ):
        await partner.invoke(attempt, SilentObserver())
        judged = await opened.invoke("one", attempt, SilentObserver())
        await partner.invoke(attempt, SilentObserver())
    assert judged.messages == (TracedMessage(role="assistant", content="1: a"),)


@pytest.mark.parametrize(
    ("spec", "window", "said"),
    [
        (TargetSpec(name="w", kind="goent", settings={"method": "cli"}), None, "another `method`"),
        (TargetSpec(name="w", kind="goent", settings={"race": ["a", "b"]}), None, "remove `race`"),
        (TargetSpec(name="w", kind="opencode"), 2, "remove `window_size`"),
        (TargetSpec(name="w", kind="cli", fallbacks=("last",)), 2, "'last' of the kind 'opencode'"),
    ],
)
def test_whom_one_cannot_talk_to_is_refused_before_anything_runs(
    spec: TargetSpec, window: int | None, said: str
) -> None:
    known = {"w": spec, "last": TargetSpec(name="last", kind="opencode")}
    one = talk(turn("one", "one"), window=window)
    with pytest.raises(ConfigError, match=said) as caught:
        plan_trials([suite(one)], known, RunSelection(targets=("w",)))
    assert str(caught.value).startswith("suite.eval.yaml:1: case 'talk' is a conversation: target")


TURNS = [
    {"input": "My name is Ann.", "assertions": [{"type": "contains", "value": "Ann"}]},
    {"input": "Who am I?", "assertions": [{"type": "contains", "value": "Ann"}]},
]
# The second turn waits for a file, so that it can be killed there.
WAITING = (
    "echo {EVAL_ID} >> calls; if [ {EVAL_ID} = talk/turn-2 ]; then "
    "while [ ! -e go ]; do sleep 0.05; done; fi; cat {PROMPT_FILE} > {OUTPUT_FILE}"
)


def test_a_killed_conversation_is_begun_again_and_can_be_graded_again(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(one=WAITING)
    one = {"id": "talk", "mode": "conversation", "turns": TURNS}
    written = desk.write("demo.eval.yaml", {"tests": [one]})
    run = ("run", written, "--out", desk.out)
    process = desk.start(*run)
    desk.until_calls(2)

    interrupted(process, signal.SIGKILL)
    told = (desk.out / "talk" / "trace.jsonl").read_text()
    (desk.folder / "go").touch()
    resumed = desk.go_ent(*run, "--resume")

    assert "My name is Ann." in told, "what there was is kept"
    assert resumed.code == 0, resumed.err
    assert desk.calls == {"talk/turn-1": 2, "talk/turn-2": 2}
    assert (desk.out / "talk" / "earlier-1" / "trace.jsonl").read_text() == told
    assert desk.left_running() == []

    changed = json.loads(json.dumps(TURNS).replace('"Ann"', '"Bob"', 1))
    desk.write("demo.eval.yaml", {"tests": [{**one, "turns": changed}]})
    again = desk.go_ent("grade", desk.out)

    assert again.code == 1, again.err
    assert scores(desk.rows()[-1]) == [("turn-1", 0.0, "fail"), ("turn-2", 1.0, "pass")]
    assert desk.calls.total() == 4, "nobody was asked"

    desk.write("demo.eval.yaml", {"tests": [{**one, "turns": [*TURNS, TURNS[1]]}]})
    longer = desk.go_ent("grade", desk.out)

    assert longer.code == 3, longer.err
    assert "its trace has no turn 3: run it again" in longer.out
