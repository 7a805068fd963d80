"""Decides which trials a run makes, of which case, by which target, and where each is kept."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from typing import Final

from msgspec.structs import replace

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.eval_results import CaseKey
from goent.evals.files.suite_validation import unknown_target
from goent.evals.suites import CaseConversation, EvalCase, Suite, TargetSpec, Trials
from goent.evals.targets.target_registry import TARGET_KINDS


def with_dependencies(chosen: Collection[str], cases: Sequence[EvalCase]) -> frozenset[str]:
    """The chosen ids, with all that they depend on, directly or not."""
    needs = {case.id: case.needs for case in cases}
    found: set[str] = set()
    waiting = list(chosen)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += needs.get(name, ())
    return frozenset(found)


def dependency_depths(cases: Sequence[EvalCase]) -> dict[tuple[str, str], int]:
    """The depth of each case, by suite and id: 0 without dependencies, else one more than its deepest."""
    needs = {case.id: case.needs for case in cases}
    found: dict[str, int] = {}
    for name in TopologicalSorter(needs).static_order():
        found[name] = 1 + max((found[need] for need in needs.get(name, ())), default=-1)
    return {(case.suite, case.id): found[case.id] for case in cases}


DEFAULT_TARGET: Final = "default"
MAX_TRIALS: Final = 1000
MAX_NAMES: Final = 20  # names listed in a message
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_UNSAFE_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9._-]+")
RESERVED_PREFIXES: Final = ("index.", "run.json", "attended.json")  # of files in a run's folder


class RunSelection(Value, frozen=True, kw_only=True):
    """Which cases of the suites to run, with which targets, how often, and how to judge them.

    `ids` are shell patterns; a case needs all of `tags` and none of `without_tags`. `judge` is used where
    no grader and no target names one.
    """

    targets: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    without_tags: tuple[str, ...] = ()
    trials: int | None = None
    threshold: float | None = None
    judge: str = ""
    compat: bool = False

    def matches(self, case: EvalCase) -> bool:
        return (
            (not self.ids or any(pattern_matches(pattern, case.id) for pattern in self.ids))
            and set(self.tags) <= set(case.tags)
            and not set(self.without_tags) & set(case.tags)
        )


class Trial(Value, frozen=True, kw_only=True):
    """One of `trials` tries of a target at a case; `number` counts from 1, `folder` is in the run's.

    `workers` is the suite's parallelism; `compat`: grade as AgentV does.
    """

    case: EvalCase
    target: str
    number: int
    trials: Trials
    threshold: float
    folder: str
    workers: int | None = None
    compat: bool = False

    @property
    def key(self) -> CaseKey:
        return CaseKey(self.case.suite, self.case.id, self.target)


def pattern_matches(pattern: str, name: str) -> bool:
    """Matches a shell pattern, or the name itself, which may contain brackets."""
    return name == pattern or fnmatchcase(name, pattern)


def plan_trials(
    suites: Sequence[Suite], known: Mapping[str, TargetSpec], wanted: RunSelection
) -> tuple[Trial, ...]:
    """All first trials come before all second ones, but cases come after their dependencies.

    Dependencies of chosen cases are included, and may not be excluded. Raises `ConfigError`.
    """
    chosen = [(suite, case) for suite in suites for case in _selected_cases(suite, wanted)]
    if not chosen:
        raise ConfigError(_no_case_text(suites, wanted))
    if wanted.trials is not None and not 1 <= wanted.trials <= MAX_TRIALS:
        raise ConfigError(f"--trials must be from 1 to {MAX_TRIALS}, not {wanted.trials}")
    shared = Counter(case.id for _, case in chosen)
    trials: list[Trial] = []
    mistakes: dict[str, None] = {}
    for suite, case in chosen:
        try:
            trials += _case_trials(suite, case, known, wanted, apart=shared[case.id] > 1)
        except ConfigError as error:
            mistakes[str(error)] = None
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    deep = {key: depth for suite in suites for key, depth in dependency_depths(suite.cases).items()}
    return tuple(sorted(_with_own_folders(trials), key=lambda one: (deep[one.key[:2]], one.number)))


def _selected_cases(suite: Suite, wanted: RunSelection) -> tuple[EvalCase, ...]:
    needed = with_dependencies(
        [case.id for case in suite.cases if wanted.matches(case)], suite.cases
    )
    chosen = tuple(case for case in suite.cases if case.id in needed)
    excluded = {case.id: tag for case in chosen for tag in wanted.without_tags if tag in case.tags}
    for case in chosen:
        for need in case.needs:
            if need in excluded and case.id not in excluded:
                raise ConfigError(
                    f"{_case_place(case)}: {case.id!r} depends on {need!r}, which "
                    f"--exclude-tag {excluded[need]!r} leaves out: exclude both, or neither"
                )
    return chosen


def targets_of(
    case: EvalCase, known: Mapping[str, TargetSpec], wanted: RunSelection
) -> tuple[str, ...]:
    """The requested targets, else those of the case, else the default or only one."""
    names = wanted.targets or case.targets
    if not names and DEFAULT_TARGET in known:
        return (DEFAULT_TARGET,)
    if not names and len(known) == 1:
        return tuple(known)
    unknown = [name for name in names if name not in known]
    if names and not unknown:
        return tuple(dict.fromkeys(names))
    if unknown:
        where = "--target" if wanted.targets else f"{_case_place(case)}: case {case.id!r}"
        raise ConfigError(
            "\n".join(f"{where}: {unknown_target(name, known)}" for name in dict.fromkeys(unknown))
        )
    there = f"there are {', '.join(map(repr, sorted(known)))}" if known else "there are none"
    raise ConfigError(
        f"{_case_place(case)}: case {case.id!r} names no target; {there}: "
        "name one by --target, in `execution.target`, or write it to .goent/targets.yaml"
    )


def used_targets(trials: Iterable[Trial], specs: Mapping[str, TargetSpec]) -> dict[str, TargetSpec]:
    """The targets of the trials, and their fallbacks."""
    found: dict[str, TargetSpec] = {}
    for name in dict.fromkeys(trial.target for trial in trials):
        spec = specs[name]
        found |= {one: specs[one] for one in (name, *spec.fallbacks)}
    return found


def _case_trials(
    suite: Suite,
    case: EvalCase,
    known: Mapping[str, TargetSpec],
    wanted: RunSelection,
    *,
    apart: bool,
) -> list[Trial]:
    names = targets_of(case, known, wanted)
    _check_conversation(case, [known[name] for name in names], known)
    trials = suite.trials
    if wanted.trials is not None:
        trials = Trials(
            count=wanted.trials, strategy=trials.strategy, cost_limit_usd=trials.cost_limit_usd
        )
    threshold = next(
        limit for limit in (wanted.threshold, case.threshold, suite.threshold) if limit is not None
    )
    above = [safe_file_name(case.suite)] if apart else []
    found: list[Trial] = []
    for name in names:
        of_target = [safe_file_name(name)] if len(names) > 1 else []
        for number in range(1, trials.count + 1):
            of_trial = [f"trial-{number}"] if number > 1 else []
            folder = "/".join([*above, safe_file_name(case.id), *of_target, *of_trial])
            found.append(
                Trial(
                    case=case,
                    target=name,
                    number=number,
                    trials=trials,
                    threshold=threshold,
                    folder=folder,
                    workers=suite.workers,
                    compat=wanted.compat,
                )
            )
    return found


def _check_conversation(
    case: EvalCase, specs: Sequence[TargetSpec], known: Mapping[str, TargetSpec]
) -> None:
    """Raises `ConfigError` if a target or fallback cannot have the conversation."""
    if case.conversation is None:
        return
    for spec in specs:
        for one in (spec, *(known[name] for name in spec.fallbacks)):
            if why := _conversation_obstacle(one, case.conversation):
                raise ConfigError(f"{_case_place(case)}: case {case.id!r} is a conversation: {why}")


def _case_place(case: EvalCase) -> str:
    return f"{case.place.file}:{case.place.line or 1}"


def _conversation_obstacle(spec: TargetSpec, talk: CaseConversation) -> str | None:
    """Why it cannot have this conversation, with a remedy."""
    who = f"target {spec.name!r} of the kind {spec.kind!r}"
    kind = TARGET_KINDS.get(spec.kind)
    if kind and (why := kind.conversation_obstacle(spec)):
        return f"{who} {why}"
    if kind and kind.is_agent and talk.window is not None:
        return (
            f"{who} remembers the whole conversation: remove `window_size`, or use a target that "
            "gets the history each turn, such as one of the kind 'cli'"
        )
    return None


def _with_own_folders(trials: Sequence[Trial]) -> list[Trial]:
    """Makes folders unique where names collide, even if only by letter case."""
    used = Counter(trial.folder.casefold() for trial in trials)
    return [
        replace(trial, folder=f"{trial.folder}-{_short_hash(repr((trial.key, trial.number)))}")
        if used[trial.folder.casefold()] > 1
        else trial
        for trial in trials
    ]


def _short_hash(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]


def safe_file_name(name: str) -> str:
    """The name if it is safe for a file, else a readable part of it with a hash."""
    if _SAFE_NAME.fullmatch(name) and not name.startswith(RESERVED_PREFIXES):
        return name
    readable = _UNSAFE_CHARACTERS.sub("_", name).strip("._-")[:60]
    return f"{readable}-{_short_hash(name)}" if readable else _short_hash(name)


def _no_case_text(suites: Sequence[Suite], wanted: RunSelection) -> str:
    cases = [case for suite in suites for case in suite.cases]
    asked = " ".join(
        f"--{option} {name!r}"
        for option, names in (
            ("id", wanted.ids),
            ("tag", wanted.tags),
            ("exclude-tag", wanted.without_tags),
        )
        for name in names
    )
    if not cases or not asked:
        return f"{', '.join(str(suite.path) for suite in suites)}: there are no cases"
    there = [f"there are {_name_list([case.id for case in cases])}"] if wanted.ids else []
    if wanted.tags or wanted.without_tags:
        tags = sorted({tag for case in cases for tag in case.tags})
        there.append(f"the tags are {_name_list(tags)}" if tags else "no case has a tag")
    return f"{asked} fits no case; {'; '.join(there)}"


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMES]) + ", …" * (len(names) > MAX_NAMES)
