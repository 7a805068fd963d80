"""What happens in the story of a seed? Which tasks, what their models do, and which faults strike.

The faults are dealt like cards: a round of stories deals every one of them once, in an order and
at moments that the seed chooses.
"""

import os
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from goent.domain.sandbox_port import SandboxLevelName, SandboxStrictness
from goent.domain.types import Usage
from goent.testing.script import Case, Fault, Script, Step, anthropic, call, case, openai, say

T = TypeVar("T")

ROUND = 4  # stories
HEALTHY = 2  # tasks of a story whose model does nothing odd
TIMEOUT_S = 6  # of a turn whose model falls silent
LEVELS: Sequence[tuple[SandboxStrictness, SandboxLevelName]] = (
    ("auto", "namespace"),
    ("landlock", "landlock"),
)
ABSURD = Usage(input=2_000_000_000, output=1)
KEY = "sk-scripted-real-key"

# How a model misbehaves in one step of a task.
TROUBLES: Mapping[str, Mapping[str, object]] = {
    "a rate limit": {"fault": Fault(status=429, retry_after=1, times=1)},
    "an overload": {"fault": Fault(status=529, times=1)},
    "an error": {"fault": Fault(status=500, times=1)},
    "a refusal": {"fault": Fault(status=400)},
    "silence": {"fault": Fault(kind="hang")},
    "silence in mid-stream": {"fault": Fault(kind="hang", after=1)},
    "a reset": {"fault": Fault(kind="cut", times=1)},
    "a reset in mid-stream": {"fault": Fault(kind="cut", after=1, times=1)},
    "an early end": {"fault": Fault(kind="eof", after=1, times=1)},
    "an error in mid-stream": {"fault": Fault(kind="error", after=1, times=1)},
    "broken JSON": {"fault": Fault(kind="malformed", after=1, times=1)},
    "a web page": {"fault": Fault(kind="garbage", times=1)},
    "a wrong label": {"fault": Fault(kind="mislabeled", times=1)},
    "slowness": {"delay": 0.5, "pace": 0.1},
    "an absurd usage": {"usage": ABSURD},
    "hardly a usage": {"usage": Usage(output=1)},
}
SURVIVED = ("", "a rate limit", "an overload", "an error", "a reset", "slowness", "hardly a usage")


class Task(NamedTuple):
    """One worker's task. `trouble` is one of `SHOWN_TROUBLES`, or nothing."""

    n: int
    trouble: str
    step: int

    @property
    def prompt(self) -> str:
        return f"task {self.n}; do it"

    @property
    def request(self) -> dict[str, Any]:
        limit = {"timeout_s": TIMEOUT_S} if "silence" in self.trouble else {}
        return {"task": self.prompt, "permissions": "auto", **limit}

    @property
    def case(self) -> Case:
        n = self.n
        steps = [
            call("bash", command=f"sleep 0.{n + 1}; echo {n} >> log-{n}", description="x"),
            call("write", filePath=f"{{cwd}}/out-{n}.txt", content="x\n"),
            say(f"Done with {n}: nothing was left out, and nothing was done twice."),
        ]
        # A little slow, so that a fault finds calls under way.
        priced = [
            step.having(usage=_usage(n, number), delay=0.1, pace=0.05)
            for number, step in enumerate(steps)
        ]
        if self.trouble:
            priced[self.step] = priced[self.step].having(**TROUBLES[self.trouble])
        # OpenCode keeps what a cut stream had said, so a step more than planned may be asked for.
        return Case(when=f"task {n};", steps=tuple(priced), repeat=True)


class Story(NamedTuple):
    """What a seed tells. `moment`: how many model calls there are when the first fault strikes.

    `level` is that of the sandbox: as it is set, and as it is on a kernel of today.
    """

    seed: int
    faults: tuple[str, ...]
    tasks: tuple[Task, ...]
    dialect: str
    moment: int
    rng: random.Random
    level: tuple[SandboxStrictness, SandboxLevelName]

    @property
    def script(self) -> Script:
        later = case("carry on;", _priced(say("Carried on."), 90))
        rest = case(None, _priced(say("I go on."), 91))
        # First, for Anthropic's dialect joins it to a task that nobody has answered.
        cases = (later, *(task.case for task in self.tasks), rest)
        if self.dialect == "anthropic":
            return Script(providers={"claude": anthropic(*cases, key=KEY)})
        return Script(providers={"moonshot": openai(*cases, key=KEY)})


def tell(seed: int, faults: Sequence[str]) -> Story:
    """The story of a seed; the same one every time."""
    rng = random.Random(f"story {seed}")
    troubles = (*_hand(tuple(TROUBLES), seed), *[""] * HEALTHY)
    tasks = tuple(
        Task(n, trouble, rng.randrange(3))
        for n, trouble in enumerate(rng.sample(troubles, len(troubles)))
    )
    return Story(
        seed=seed,
        faults=_hand(faults, seed),
        tasks=tasks,
        dialect=rng.choice(["openai", "anthropic"]),
        moment=rng.randint(1, len(tasks)),
        rng=rng,
        level=LEVELS[seed % len(LEVELS)],
    )


def _hand(deck: Sequence[T], seed: int) -> tuple[T, ...]:
    """This story's share of what its round deals."""
    number, place = divmod(seed, ROUND)
    shuffled = random.Random(f"round {number}").sample(deck, len(deck))
    return tuple(shuffled[place::ROUND])


def _usage(n: int, step: int) -> Usage:
    return Usage(input=1000 * (n + 1) + step, output=20 + step)


def _priced(step: Step, number: int) -> Step:
    return step.having(usage=_usage(number, 0))


def seeds() -> list[int]:
    """`GOENT_SEEDS`: one (`17`), some (`3,17`) or a range (`100-199`); a round without it."""
    chosen: list[int] = []
    for part in os.environ.get("GOENT_SEEDS", f"0-{ROUND - 1}").split(","):
        first, _, last = part.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    return chosen
