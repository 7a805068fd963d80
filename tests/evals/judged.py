"""A judge who says what he is told to say, and remembers what he was asked."""

import json
from collections.abc import Callable

from sandboxed import eval_commands

from goent.domain.errors import GoentError
from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.graders.target_judge import Judgement, JudgeQuestion
from goent.evals.suites import EvalCase, GraderSpec, InputMessage, SuiteDialect
from goent.evals.traces import TokenUsage, Trace, TracedCall, TracedMessage

Reply = str | dict[str, object] | GoentError | Callable[[JudgeQuestion], str]


class ScriptedJudge:
    """One reply after the other; the last one for ever. Each costs 0.25 USD, if it costs."""

    def __init__(self, *replies: Reply, cost: float | None = 0.25) -> None:
        self._replies = list(replies)
        self._cost = cost
        self.asked: list[JudgeQuestion] = []

    async def __call__(self, question: JudgeQuestion) -> Judgement:
        self.asked.append(question)
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        if isinstance(reply, GoentError):
            raise reply
        if isinstance(reply, dict):
            text = json.dumps(reply)
        else:
            text = reply if isinstance(reply, str) else reply(question)
        usage = TokenUsage(input=10, output=1)
        return Judgement(by="judge", text=text, usage=usage, cost_usd=self._cost)


def a_case(
    *graders: GraderSpec, form: SuiteDialect = "v4", criteria: str = "It is polite."
) -> EvalCase:
    said = (InputMessage(role="user", text="Greet Ann."),)
    return EvalCase(id="c", suite="s", form=form, input=said, graders=graders, criteria=criteria)


def a_trace(answer: str = "Good morning, Ann.", *calls: TracedCall) -> Trace:
    return Trace(messages=(TracedMessage(role="assistant", content=answer, tool_calls=calls),))


def llm(**settings: object) -> GraderSpec:
    return GraderSpec(type="llm-grader", name="llm", settings=settings)


def rubrics(*criteria: object) -> GraderSpec:
    return GraderSpec(type="rubrics", name="rubrics", settings={"criteria": list(criteria)})


async def judged(
    judge: ScriptedJudge,
    *graders: GraderSpec,
    case: EvalCase | None = None,
    trace: Trace | None = None,
    compat: bool = False,
) -> CaseGrade:
    return await ask_and_grade(
        case or a_case(*graders),
        trace or a_trace(),
        threshold=0.8,
        compat=compat,
        tools=GraderTools(commands=eval_commands({"PATH": "/usr/bin:/bin"}), judge=judge),
    )
