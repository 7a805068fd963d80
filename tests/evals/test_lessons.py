"""What evaluations teach the router: once for each trial, with the judgement of its graders."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from eval_stage import case_of
from world import COLD, World, a_world

from goent.domain.replies import LearnedReply
from goent.domain.task_profile import TaskSample
from goent.domain.types import Usage
from goent.evals.eval_results import Row
from goent.evals.router_feedback import TrialHistory, judgement_of
from goent.evals.traces import TokenUsage, Trace, TracedMessage, TraceWorker
from goent.providers.track_record import SqliteHistory
from goent.routing.router import TaskClassifier
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CASE = case_of("Fix the crash in src/parser.py when the input is empty")
WORKER = "w-aaaaa@12.000"


def a_trace(*, worker: str = "", by: bool = True, start: str = "2026-01-01T00:00:00Z") -> Trace:
    made = TraceWorker(
        provider="glm", backend="moonshot", model="glm-4", method="acp", worker=worker
    )
    return Trace(
        messages=(TracedMessage(role="assistant", content="done"),),
        usage=TokenUsage(input=10, output=5, reasoning=2, cached=3),
        cost_usd=0.25,
        duration_ms=4000,
        start_time=start,
        end_time="2026-01-01T00:00:04Z",
        by=made if by else None,
    )


def a_row(status: str = "ok") -> Row:
    return msgspec.convert(
        {"test_id": "one", "target": "w", "score": 1.0, "execution_status": status, "suite": "s"},
        Row,
    )


@asynccontextmanager
async def learning(tmp_path: Path) -> AsyncGenerator[tuple[TrialHistory, SqliteHistory]]:
    async with SqliteHistory.open(tmp_path / "history.db") as history:
        yield TrialHistory(history, TaskClassifier(), tmp_path), history


async def test_a_graded_trial_is_an_outcome_of_its_class(tmp_path: Path):
    async with learning(tmp_path) as (learn, history):
        await learn(CASE, a_row(), a_trace())
        (sample,) = await history.recent()
    assert (sample.type, sample.backend, sample.model) == ("fix", "moonshot", "glm-4")
    assert (sample.state, sample.evidence, sample.graded) == ("completed", "verified", True)
    assert (sample.cost_usd, sample.seconds) == (Decimal("0.25"), 4.0)
    assert sample.usage == Usage(input=10, output=3, reasoning=2, cache_read=3)


async def test_a_trial_is_learned_once_and_its_last_grade_counts(tmp_path: Path):
    async with learning(tmp_path) as (learn, history):
        for status in ("ok", "ok", "quality_failure"):
            await learn(CASE, a_row(status), a_trace())
        (sample,) = await history.recent()
        assert (sample.state, sample.evidence) == ("failed", "refuted")
        await learn(CASE, a_row(), a_trace(start="2026-01-02T00:00:00Z"))
        assert len(await history.recent()) == 2


async def test_a_workers_own_lesson_is_judged_and_not_doubled(tmp_path: Path):
    own = TaskSample(
        at=16.0,
        provider="glm",
        backend="moonshot",
        model="glm-4",
        method="acp",
        type="fix",
        complexity="simple",
        size=1.0,
        cost_usd=Decimal("0.1"),
        usage=Usage(input=1),
        seconds=3.0,
        state="completed",
        evidence="claimed",
        place=WORKER,
    )
    async with learning(tmp_path) as (learn, history):
        await history.add(own)
        assert len(await history.recent()) == 1
        await learn(CASE, a_row("quality_failure"), a_trace(worker=WORKER))
        (sample,) = await history.recent()
        assert (sample.evidence, sample.graded, sample.cost_usd) == ("refuted", True, own.cost_usd)
        await history.add(own)  # told late: the judgement stands
        assert (await history.recent())[0].evidence == "refuted"


async def test_what_says_nothing_of_quality_teaches_nothing(tmp_path: Path):
    async with learning(tmp_path) as (learn, history):
        await learn(CASE, a_row("execution_error"), a_trace())
        await learn(CASE, a_row(), a_trace(by=False))
        assert await history.recent() == ()


async def test_a_later_grade_corrects_what_is_known_and_adds_nothing(tmp_path: Path):
    refuted = judgement_of(a_row("quality_failure"), a_trace())
    assert refuted
    async with learning(tmp_path) as (learn, history):
        await history.regrade(refuted)
        assert await history.recent() == (), "the run was made elsewhere"
        await learn(CASE, a_row(), a_trace())
        await history.regrade(refuted)
        (sample,) = await history.recent()
    assert (sample.state, sample.evidence) == ("failed", "refuted")
    assert (sample.failure, sample.graded) == ("verify_failed", True)


SCRIPT = Script(
    providers={
        "moonshot": openai(case(None, say("I cannot.")), models=("ann",), key="sk-m"),
        "deepseek": openai(case(None, say("It is 42.")), models=("ben",), key="sk-d"),
    }
)
PROVIDERS = """\
providers:
  ann: {provider: moonshot, model: ann, best_for: [analysis], price: {input: 1, output: 1}}
  ben: {provider: deepseek, model: ben, best_for: [analysis], price: {input: 1, output: 1}}
"""
TASK = "Explain how the parser in src/parser.py handles errors"


async def recommended(world: World) -> tuple[str, str]:
    ended = await world.go_ent("recommend", TASK, "--json")
    assert ended.exit == 0, ended.err
    found = msgspec.json.decode(ended.out, type=dict[str, object])
    return str(found["provider"]), str(found["rationale"])


async def test_an_evaluation_changes_the_recommendation_and_a_better_grade_corrects_it(
    tmp_path: Path,
):
    async with a_world(tmp_path, SCRIPT, config=COLD) as world:
        (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
        world.trust()
        (world.project / ".goent" / "targets.yaml").write_text(
            "targets:\n"
            "  - {name: a, provider: goent, subprovider: ann, method: api, workers: 4}\n"
            "  - {name: b, provider: goent, subprovider: ben, method: api, workers: 4}\n"
        )
        cases = "".join(
            f"  - {{id: c{n}, input: '{TASK}', assertions: [{{type: contains, value: '42'}}]}}\n"
            for n in range(12)
        )
        (world.project / "ask.eval.yaml").write_text(f"tests:\n{cases}")
        before, _ = await recommended(world)
        assert before == "ann"
        command = ("eval", "run", "ask.eval.yaml", "-t", "a", "-t", "b", "--out", "out", "--json")
        ended = await world.go_ent(*command, seconds=120)
        assert ended.exit == 1, ended.err
        assert (world.project / "out" / "index.jsonl").exists(), ended.err
        after, why = await recommended(world)
        assert after == "ben"
        explained = await world.go_ent("routes", "explain", TASK, "--json")
        assert "ben 12 of 12 good, 12 of them in evaluations" in explained.out, why
        learned = await world.go_ent("routes", "learned", "--json")
        found = msgspec.json.decode(learned.out, type=LearnedReply)
        assert found.outcomes == 24
        assert {(line.provider, line.graded) for line in found.classes} >= {
            ("ann", 12),
            ("ben", 12),
        }
        graders = world.project / "graders.yaml"
        graders.write_text("assertions: [{type: contains, value: I cannot}]\n")
        grade = ("eval", "grade", "out", "--graders", "graders.yaml", "--json")
        assert (await world.go_ent(*grade, "--out", "tried")).exit == 1
        assert (await recommended(world))[0] == "ben"
        assert (await world.go_ent(*grade)).exit == 1
        assert (await recommended(world))[0] == "ann"
        assert (await world.go_ent("eval", "grade", "tried", "--json")).exit == 1
        assert (await recommended(world))[0] == "ann", "it is still a try"
        learned = await world.go_ent("routes", "learned", "--json")
        assert msgspec.json.decode(learned.out, type=LearnedReply).outcomes == 24
