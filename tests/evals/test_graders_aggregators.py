"""Composites whose members become one by what a script or a judge says."""

import json
import sys

import pytest
from judged import ScriptedJudge, a_case, judged, llm

from goent.evals.graders.case_grader import grade
from goent.evals.graders.target_judge import JudgeFailed
from goent.evals.suites import GraderSpec
from goent.evals.traces import Trace, TracedMessage

pytestmark = pytest.mark.anyio

GOOD = GraderSpec(type="contains", name="good", settings={"value": "Ann"})
BAD = GraderSpec(type="contains", name="bad", settings={"value": "Bob"})
MUST = GraderSpec(type="contains", name="must", settings={"value": "Bob"}, required=True)
LOWEST = """if True:
    import json, sys
    results = json.load(sys.stdin)["results"]
    print(json.dumps({
        "score": min(one["score"] for one in results.values()),
        "assertions": [{"text": name, "passed": one["verdict"] == "pass"} for name, one in results.items()],
    }))
"""


def composite(*members: GraderSpec, **aggregator: object) -> GraderSpec:
    settings = {"aggregator": aggregator}
    return GraderSpec(type="composite", name="all", members=members, settings=settings)


def by_script(*members: GraderSpec, code: str = LOWEST) -> GraderSpec:
    return composite(*members, type="code-grader", command=[sys.executable, "-I", "-c", code])


def by_judge(*members: GraderSpec, **settings: object) -> GraderSpec:
    return composite(*members, type="llm-grader", **settings)


async def test_a_script_makes_one_of_many():
    found = await judged(ScriptedJudge("no"), by_script(GOOD, BAD))
    (one,) = found.grades
    assert (one.score, [member.score for member in one.members]) == (0, [1, 0])
    assert [(said.text, said.passed) for said in one.assertions] == [("good", True), ("bad", False)]
    assert (await judged(ScriptedJudge("no"), by_script(GOOD))).score == 1


async def test_a_script_that_fails_fails_its_composite():
    found = await judged(ScriptedJudge("no"), by_script(GOOD, code="raise SystemExit('no')"))
    assert (found.score, found.status) == (0, "quality_failure")
    assert "ended with 1: no" in found.grades[0].assertions[0].text


async def test_a_judge_makes_one_of_many_and_is_told_what_they_said():
    judge = ScriptedJudge({"score": 0.9, "assertions": []})
    found = await judged(judge, by_judge(GOOD, BAD, target="chair"))
    assert (found.score, found.judge_cost_usd) == (0.9, 0.25)
    (asked,) = judge.asked
    assert asked.judge == "chair"
    assert '"name":"bad","type":"contains","score":0.0,"verdict":"fail"' in asked.prompt
    own = await judged(judge, by_judge(GOOD, prompt="Sum up {{EVALUATOR_RESULTS_JSON}}"))
    assert own.score == 0.9
    assert judge.asked[1].prompt.startswith("Sum up <<<")


async def test_a_composite_inside_another_is_made_one_first():
    judge = ScriptedJudge(json.dumps({"score": 0.9}), json.dumps({"score": 0.4}))
    found = await judged(judge, by_judge(by_judge(GOOD), BAD))
    assert found.score == 0.4
    assert '"name":"all","type":"composite","score":0.9' in judge.asked[1].prompt
    assert found.judge_cost_usd == 0.5


async def test_nobody_is_asked_about_what_is_settled():
    judge = ScriptedJudge({"score": 1})
    assert (await judged(judge, by_judge(GOOD, MUST))).score == 0
    assert judge.asked == []
    gone = ScriptedJudge(JudgeFailed("gone"))
    assert (await judged(gone, by_judge(GOOD, llm()))).error == "gone"
    assert len(gone.asked) == 1
    agentv = await judged(judge, by_judge(GOOD, MUST), compat=True)
    assert (agentv.score, len(judge.asked)) == (1, 1)


async def test_who_could_not_be_asked_leaves_the_case_open():
    found = await judged(ScriptedJudge(JudgeFailed("gone")), by_judge(GOOD))
    assert (found.status, found.error) == ("execution_error", "gone")


def test_without_anybody_to_ask_it_is_broken_and_says_so():
    done = Trace(messages=(TracedMessage(role="assistant", content="Ann"),))
    found = grade(a_case(by_judge(GOOD)), done, threshold=0.8, compat=False)
    assert found.score == 0
    assert "was not asked" in found.grades[0].assertions[0].text
