"""What is to be evaluated? Suites, their cases, and how each is graded; whichever dialect they were written in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from goent.domain.types import Value
from goent.evals.traces import TracedMessage

FOLDERS: Final = (".goent", ".agentv")  # where targets and templates are looked for
Form = Literal["seed", "v4"]  # `evalcases` or `tests`: they differ in defaults
Policy = Literal["reject", "once", "always"]


class Place(Value, frozen=True, kw_only=True):
    """Where something was written, for people: file, line, and path of keys."""

    file: str
    line: int | None = None
    key: str = ""


class GraderSpec(Value, frozen=True, kw_only=True):
    """One grader of a case. `type` is in kebab-case; `settings` are what is left of its entry.

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
    place: Place = Place(file="")


class Said(Value, frozen=True, kw_only=True):
    """One message of a case's input. `files` are what its blocks of type `file` name, absolute."""

    role: str
    text: str
    files: tuple[Path, ...] = ()


class Hook(Value, frozen=True, kw_only=True):
    """A command around an attempt; it gets JSON about the case on standard input."""

    command: tuple[str, ...]
    timeout_s: float = 120.0
    cwd: Path | None = None


class WorkspaceSpec(Value, frozen=True, kw_only=True):
    """What an attempt's own directory begins with: a copied folder, or a clone of a repository."""

    template: Path | None = None
    repository: str = ""
    ref: str = ""
    before_all: Hook | None = None
    before_each: Hook | None = None
    after_each: Hook | None = None
    after_all: Hook | None = None


class Turn(Value, frozen=True, kw_only=True):
    """One thing that is said to the agent in a conversation, and what its answer is worth."""

    input: tuple[Said, ...]
    expected: tuple[TracedMessage, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    place: Place = Place(file="")


class Conversation(Value, frozen=True, kw_only=True):
    """Turn after turn with the same agent. `aggregation`: how the scores of the turns become one.

    `window`: who remembers nothing by itself is told so many of the last exchanges; None is all of them.
    """

    turns: tuple[Turn, ...]
    aggregation: Literal["mean", "min", "max"] = "mean"
    on_failure: Literal["continue", "stop"] = "continue"
    window: int | None = None


class Case(Value, frozen=True, kw_only=True):
    """One test. `input` ends with what is asked; `expected` is a reference for graders.

    In a conversation `input` is what comes before its first turn, and `graders` look at all of it.
    `needs` are cases of the same suite that come first.
    `tags` are those of its suite and its own; `metadata` has the ones that are nearest to it.
    """

    id: str
    suite: str
    form: Form
    input: tuple[Said, ...]
    criteria: str = ""
    expected: tuple[TracedMessage, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    targets: tuple[str, ...] = ()
    threshold: float | None = None
    workspace: WorkspaceSpec | None = None
    guidelines: tuple[Path, ...] = ()
    metadata: Mapping[str, object] = {}
    tags: tuple[str, ...] = ()
    conversation: Conversation | None = None
    needs: tuple[str, ...] = ()
    on_need_failure: Literal["skip", "fail", "run"] = "skip"
    place: Place = Place(file="")

    @property
    def everything_said(self) -> tuple[Said, ...]:
        """Its input, and that of its turns."""
        turns = self.conversation.turns if self.conversation else ()
        return (*self.input, *(said for turn in turns for said in turn.input))

    @property
    def every_grader(self) -> tuple[GraderSpec, ...]:
        """Its own, and those of its turns."""
        turns = self.conversation.turns if self.conversation else ()
        return (*self.graders, *(grader for turn in turns for grader in turn.graders))


class Trials(Value, frozen=True, kw_only=True):
    """How often each case is run, and how its trials become one score."""

    count: int = 1
    strategy: Literal["pass_at_k", "mean", "confidence_interval"] = "mean"
    cost_limit_usd: float | None = None


class Suite(Value, frozen=True, kw_only=True):
    """A file of cases, with what holds for all of them.

    `fail_on_error`: once an attempt of a target could not be judged, it makes no other.
    """

    name: str
    path: Path
    form: Form
    cases: tuple[Case, ...]
    description: str = ""
    workers: int | None = None
    threshold: float = 0.8
    budget_usd: float | None = None
    trials: Trials = Trials()
    fail_on_error: bool = False


class Retry(Value, frozen=True, kw_only=True):
    """How often an attempt whose failure may pass is made again, and after which wait.

    `never`: kinds of failures after which it is not, although they may.
    """

    max_retries: int = 2
    initial_delay_s: float = 1.0
    max_delay_s: float = 30.0
    factor: float = 2.0
    never: tuple[str, ...] = ()


AGENTS: Final = ("goent", "opencode")
"""Kinds of targets that are agents: they work in a directory, remember what was said, and have a provider behind them."""


class TargetSpec(Value, frozen=True, kw_only=True):
    """Who is evaluated. `kind` names the provider; `settings` are its own, in snake_case."""

    name: str
    kind: str
    settings: Mapping[str, object] = {}
    workers: int | None = None
    fallbacks: tuple[str, ...] = ()
    grader_target: str | None = None
    retry: Retry = Retry()
    place: Place = Place(file="")

    @property
    def is_agent(self) -> bool:
        return self.kind in AGENTS
