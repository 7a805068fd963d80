"""Defines suites, their cases, graders and targets, whichever dialect they were written in."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from goent.domain.types import Value
from goent.evals.traces import TracedMessage

SETTINGS_FOLDERS: Final = (".goent", ".agentv")  # with targets and templates
SuiteDialect = Literal["seed", "v4"]  # `evalcases` or `tests`: they differ in defaults
AskPolicy = Literal["reject", "once", "always"]


class SuiteLocation(Value, frozen=True, kw_only=True):
    """Where something was written: file, line, and path of keys."""

    file: str
    line: int | None = None
    key: str = ""


class GraderSpec(Value, frozen=True, kw_only=True):
    """One grader of a case. `type` is in kebab-case; `settings` are those of its type.

    `required`: True, or the score below which the case fails. `members` are those of a composite.
    """

    type: str
    name: str
    settings: Mapping[str, object] = {}
    weight: float = 1.0
    required: bool | float = False
    min_score: float | None = None
    negate: bool = False
    members: tuple["GraderSpec", ...] = ()
    place: SuiteLocation = SuiteLocation(file="")


class InputMessage(Value, frozen=True, kw_only=True):
    """One message of a case's input. `files` are absolute paths from its blocks of type `file`."""

    role: str
    text: str
    files: tuple[Path, ...] = ()


class Hook(Value, frozen=True, kw_only=True):
    """A command around an attempt; it gets JSON about the case on standard input."""

    command: tuple[str, ...]
    timeout_s: float = 120.0
    cwd: Path | None = None


class WorkspaceSpec(Value, frozen=True, kw_only=True):
    """What an attempt's directory starts from: a copied folder, or a clone of a repository."""

    template: Path | None = None
    repository: str = ""
    ref: str = ""
    before_all: Hook | None = None
    before_each: Hook | None = None
    after_each: Hook | None = None
    after_all: Hook | None = None


class CaseTurn(Value, frozen=True, kw_only=True):
    """One turn of a conversation, with its graders."""

    input: tuple[InputMessage, ...]
    expected: tuple[TracedMessage, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    place: SuiteLocation = SuiteLocation(file="")


class CaseConversation(Value, frozen=True, kw_only=True):
    """Several turns with the same agent. `aggregation`: how their scores become one.

    `window`: how many of the last exchanges a target without a memory gets; None is all of them.
    """

    turns: tuple[CaseTurn, ...]
    aggregation: Literal["mean", "min", "max"] = "mean"
    on_failure: Literal["continue", "stop"] = "continue"
    window: int | None = None


class EvalCase(Value, frozen=True, kw_only=True):
    """One test. `input` ends with the question; `expected` is a reference for graders.

    In a conversation `input` comes before the first turn, and `graders` grade the whole.
    `needs` are cases of the same suite that run first. `tags` are the suite's and its own.
    """

    id: str
    suite: str
    form: SuiteDialect
    input: tuple[InputMessage, ...]
    criteria: str = ""
    expected: tuple[TracedMessage, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    targets: tuple[str, ...] = ()
    threshold: float | None = None
    workspace: WorkspaceSpec | None = None
    guidelines: tuple[Path, ...] = ()
    metadata: Mapping[str, object] = {}
    tags: tuple[str, ...] = ()
    conversation: CaseConversation | None = None
    needs: tuple[str, ...] = ()
    on_need_failure: Literal["skip", "fail", "run"] = "skip"
    place: SuiteLocation = SuiteLocation(file="")

    @property
    def all_input(self) -> tuple[InputMessage, ...]:
        """Its input, and that of its turns."""
        turns = self.conversation.turns if self.conversation else ()
        return (*self.input, *(said for turn in turns for said in turn.input))

    @property
    def all_graders(self) -> tuple[GraderSpec, ...]:
        """Its own, and those of its turns."""
        turns = self.conversation.turns if self.conversation else ()
        return (*self.graders, *(grader for turn in turns for grader in turn.graders))


class Trials(Value, frozen=True, kw_only=True):
    """How often each case is run, and how its trials become one score."""

    count: int = 1
    strategy: Literal["pass_at_k", "mean", "confidence_interval"] = "mean"
    cost_limit_usd: float | None = None


class Suite(Value, frozen=True, kw_only=True):
    """A file of cases, with settings for all of them.

    `fail_on_error`: after an execution error, a target makes no further attempts.
    """

    name: str
    path: Path
    form: SuiteDialect
    cases: tuple[EvalCase, ...]
    description: str = ""
    workers: int | None = None
    threshold: float = 0.8
    budget_usd: float | None = None
    trials: Trials = Trials()
    fail_on_error: bool = False


class Retry(Value, frozen=True, kw_only=True):
    """How often, and after which wait, an attempt with a transient failure is retried.

    `never`: kinds of failures that are not retried, although they are transient.
    """

    max_retries: int = 2
    initial_delay_s: float = 1.0
    max_delay_s: float = 30.0
    factor: float = 2.0
    never: tuple[str, ...] = ()


class TargetSpec(Value, frozen=True, kw_only=True):
    """What is evaluated. `kind` names the provider; `settings` are those of its kind, in snake_case."""

    name: str
    kind: str
    settings: Mapping[str, object] = {}
    workers: int | None = None
    fallbacks: tuple[str, ...] = ()
    grader_target: str | None = None
    retry: Retry = Retry()
    place: SuiteLocation = SuiteLocation(file="")


def prompt_text(case: EvalCase) -> str:
    """The whole input as one text; several messages are headed by their roles."""
    if len(case.input) == 1:
        return case.input[0].text
    return "\n\n".join(f"[{said.role}]\n{said.text}" for said in case.input)


def turn_case(
    case: EvalCase, talk: CaseConversation, number: int, answers: Sequence[str]
) -> EvalCase:
    """The case of a turn, counted from 0, with the history; `answers` are those of earlier turns."""
    said = list(case.input)
    for turn, answer in zip(talk.turns[:number], answers, strict=False):
        said += [*turn.input, InputMessage(role="assistant", text=answer)]
    said += talk.turns[number].input
    return _as_case(case, talk, number, _last_exchanges(said, talk.window))


def new_input_case(case: EvalCase, talk: CaseConversation, number: int) -> EvalCase:
    """The case of a turn with its new input only, for a target that remembers the rest."""
    said = talk.turns[number].input
    if number == 0:
        return _as_case(case, talk, number, (*case.input, *said))
    return replace(_as_case(case, talk, number, said), guidelines=())


def whole_case(case: EvalCase) -> EvalCase:
    """The whole conversation as one case, for graders that are not of one turn."""
    return replace(case, input=case.all_input, conversation=None)


def _as_case(
    case: EvalCase, talk: CaseConversation, number: int, said: Sequence[InputMessage]
) -> EvalCase:
    turn = talk.turns[number]
    return replace(
        case,
        id=f"{case.id}/turn-{number + 1}",
        input=tuple(said),
        expected=turn.expected,
        graders=turn.graders,
        conversation=None,
    )


def _last_exchanges(said: Sequence[InputMessage], window: int | None) -> Sequence[InputMessage]:
    """The last exchanges of two messages, as AgentV counts them; system messages stay."""
    if window is None:
        return said
    spoken = [one for one in said if one.role != "system"][-2 * window :]
    return [*(one for one in said if one.role == "system"), *spoken]
