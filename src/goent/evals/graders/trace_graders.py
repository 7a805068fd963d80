"""Grades what the agent did: its tool calls and skills, and the time, money and tokens it used."""

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final, Literal

import msgspec

from goent.domain.types import Value
from goent.evals.eval_results import Assertion
from goent.evals.graders.findings import (
    GraderFinding,
    GraderInput,
    InvalidGrader,
    all_or_nothing,
    broken_finding,
    passed_share,
    single_check,
    subagent_caveat,
)
from goent.evals.graders.grader_kind import GraderKind, GraderSettings, read_grader_settings
from goent.evals.graders.javascript_regex import pattern_found
from goent.evals.graders.json_values import (
    NO_KEYS,
    is_absent,
    is_array,
    is_object,
    json_equal,
    value_at,
)
from goent.evals.traces import CallStatus, TokenUsage, Trace, TracedCall

ArgsMatch = (
    Literal["exact", "superset", "subset", "ignore", "glob", "regex"] | tuple[str, ...] | None
)
_EXPLORATION_TOOLS = frozenset(
    {"read", "grep", "glob", "search", "list", "ls", "websearch", "webfetch", "codesearch"}
)
_PATH_KEYS = ("file_path", "filePath", "path")
_TOOL_SYNONYMS: Final[Mapping[str, frozenset[str]]] = {
    "edit": frozenset({"patch", "applypatch", "multiedit"}),
    "bash": frozenset({"shell"}),
}
"""Tools that another name also means. Which of them an agent has depends on its model."""

ExpectedCalls = Sequence["ExpectedCall"]
TracedCalls = Sequence[TracedCall]
CallIndexes = list[int]
"""For each expected item the index of its call, or -1."""


class ExpectedCall(GraderSettings, frozen=True, kw_only=True):
    """One call that should be there. Arguments are ignored without `args`, or with `any`."""

    tool: str
    args: Mapping[str, object] | Literal["any"] | None = None
    args_match: ArgsMatch = None
    max_duration_ms: float | None = None
    status: CallStatus | None = None


class TrajectorySettings(GraderSettings, frozen=True, kw_only=True):
    """Settings of `tool-trajectory`; AgentV has those before `status`, which holds for all items.

    With `subagents`, their calls are in the sequence too; `forbidden`, `max` and `followed_by` always see them.
    """

    mode: Literal["any_order", "in_order", "exact", "superset", "subset"]
    expected: tuple[ExpectedCall, ...] = ()
    minimums: Mapping[str, int] | None = None
    args_match: ArgsMatch = None
    status: CallStatus | None = None
    forbidden: tuple[str, ...] = ()
    max: Mapping[str, int] = {}
    followed_by: Mapping[str, str] = {}
    subagents: bool = False


class LatencyLimit(GraderSettings, frozen=True, kw_only=True):
    """In milliseconds."""

    threshold: float


class CostLimit(GraderSettings, frozen=True, kw_only=True):
    """In US dollars."""

    budget: float


class TokenLimits(GraderSettings, frozen=True, kw_only=True):
    """All that are set must hold."""

    max_total: int | None = None
    max_input: int | None = None
    max_output: int | None = None


class MetricLimits(GraderSettings, frozen=True, kw_only=True):
    """Each that is set is one check."""

    max_tool_calls: int | None = None
    max_llm_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_duration_ms: float | None = None
    target_exploration_ratio: float | None = None
    exploration_tolerance: float = 0.2


class SkillSettings(GraderSettings, frozen=True, kw_only=True):
    """Settings of `skill-trigger`."""

    skill: str
    should_trigger: bool = True


class CallMatcher(Value, frozen=True, kw_only=True):
    """How items are compared with calls: as the item says, else the grader, else the dialect."""

    args: ArgsMatch
    status: CallStatus | None
    compat: bool

    def matches_tool(self, pattern: str, call: TracedCall) -> bool:
        """Unless `compat`, case does not count, and `*` is a wildcard.

        `edit` also means other tools that edit; `patch` means only itself.
        """
        if self.compat:
            return pattern == call.tool
        spelt = fnmatchcase(call.tool.casefold(), pattern.casefold())
        return spelt or _plain_name(call.tool) in _TOOL_SYNONYMS.get(pattern.casefold(), ())

    def counts(self, tool: str, call: TracedCall) -> bool:
        return self.matches_tool(tool, call) and self._status(self.status, call)

    def matches(self, item: ExpectedCall, call: TracedCall) -> bool:
        return (
            self.matches_tool(item.tool, call)
            and self._args(item, call)
            and self._status(item.status or self.status, call)
        )

    def _args(self, item: ExpectedCall, call: TracedCall) -> bool:
        if item.args is None or item.args == "any":
            return True
        how = self.args if item.args_match is None else item.args_match
        given = call.input if self.compat else _respell_keys(item.args, call.input)
        return _args_fit(item.args, given, how)

    def _status(self, wanted: CallStatus | None, call: TracedCall) -> bool:
        return self.compat or wanted is None or wanted == call.status


def call_matcher(look: GraderInput, settings: TrajectorySettings) -> CallMatcher:
    default = "superset" if look.case.form == "seed" else "exact"
    how = default if settings.args_match is None else settings.args_match
    if look.compat and {how, *(item.args_match for item in settings.expected)} & {"glob", "regex"}:
        raise InvalidGrader(f"Grader {look.spec.name!r}: AgentV knows no patterns in arguments.")
    for item in settings.expected:
        own = how if item.args_match is None else item.args_match
        if own == "regex":
            _check_patterns(item.args)
        if isinstance(own, tuple) and is_object(item.args) and not look.compat:
            _check_paths(look, item.args, own)
    return CallMatcher(args=how, status=settings.status, compat=look.compat)


def _check_paths(look: GraderInput, args: Mapping[str, object], paths: Sequence[str]) -> None:
    """Raises `InvalidGrader`: a path that `args` lack would fit every call."""
    lacking = [path for path in paths if is_absent(value_at(args, path))]
    if lacking or not paths:
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: `args_match` names {lacking!r}, "
            f"and `args` have only {sorted(args)!r}."
        )


def _check_patterns(args: object) -> None:
    """Raises `InvalidGrader` now: comparing with calls would find a bad pattern late, or never."""
    if isinstance(args, str):
        _regex_fits(args, "")
    for part in args.values() if is_object(args) else args if is_array(args) else ():
        _check_patterns(part)


def _plain_name(name: str) -> str:
    return name.casefold().replace("_", "")


def _respell_keys(expected: object, given: object) -> object:
    """The given arguments, with keys spelt as expected (`filePath` for `file_path`).

    Only where the expected key is missing, so that none stands for two.
    """
    if is_array(expected) and is_array(given):
        pairs = zip(expected, given, strict=False)
        return [*(_respell_keys(one, other) for one, other in pairs), *given[len(expected) :]]
    if not is_object(expected) or not is_object(given):
        return given
    missing = {_plain_name(key): key for key in expected if key not in given}
    found: dict[str, object] = {}
    for key, value in given.items():
        name = key if key in expected else missing.pop(_plain_name(key), key)
        found[name] = _respell_keys(expected.get(name), value)
    return found


def _args_fit(expected: Mapping[str, object], actual: object, how: ArgsMatch) -> bool:
    if how == "ignore":
        return True
    if isinstance(how, tuple):
        return all(json_equal(value_at(expected, path), value_at(actual, path)) for path in how)
    given = NO_KEYS if actual is None else actual
    if not is_object(given):
        return False
    match how:
        case "superset":
            return all(key in given and json_equal(expected[key], given[key]) for key in expected)
        case "subset":
            return all(key in expected and json_equal(expected[key], given[key]) for key in given)
        case "glob" | "regex":
            return all(
                key in given and _fits_pattern(expected[key], given[key], how) for key in expected
            )
        case _:
            return json_equal(expected, given)


def _fits_pattern(pattern: object, value: object, how: str) -> bool:
    if isinstance(pattern, str) and isinstance(value, str):
        return fnmatchcase(value, pattern) if how == "glob" else _regex_fits(pattern, value)
    if is_object(pattern) and is_object(value):
        return all(key in value and _fits_pattern(pattern[key], value[key], how) for key in pattern)
    if is_array(pattern) and is_array(value):
        pairs = zip(pattern, value, strict=False)
        return len(pattern) == len(value) and all(
            _fits_pattern(one, other, how) for one, other in pairs
        )
    return json_equal(pattern, value)


def _regex_fits(pattern: str, value: str) -> bool:
    try:
        return pattern_found(re.compile(pattern), value)
    except re.error as error:
        raise InvalidGrader(f"{pattern!r} is not a regular expression: {error}.") from None


def _is_late(item: ExpectedCall, call: TracedCall) -> bool:
    limit, took = item.max_duration_ms, call.duration_ms
    return limit is not None and (took is None or took > limit)


def pair_calls(
    items: Sequence[ExpectedCall], calls: Sequence[TracedCall], fits: CallMatcher
) -> list[int]:
    """Pairs as many items with calls as possible, each call once.

    Of the calls that fit, one in time is preferred to a late one, and a free one to one that
    another item would have to give up.
    """
    holder: dict[int, int] = {}

    def place(item: int, tried: set[int]) -> bool:
        fitting = [i for i, call in enumerate(calls) if fits.matches(items[item], call)]
        for index in sorted(fitting, key=lambda i: (_is_late(items[item], calls[i]), i in holder)):
            if index in tried:
                continue
            tried.add(index)
            if index not in holder or place(holder[index], tried):
                holder[index] = item
                return True
        return False

    for item in range(len(items)):
        place(item, set())
    found = [-1] * len(items)
    for index, item in holder.items():
        found[item] = index
    return found


def tool_trajectory(look: GraderInput) -> GraderFinding | None:
    settings = read_grader_settings(look.spec, TrajectorySettings)
    fits = call_matcher(look, settings)
    if look.compat and settings.mode == "any_order" and not settings.minimums:
        return None
    if not look.trace.messages:
        return broken_finding("There is no trace.")
    calls = look.trace.calls
    if look.compat:
        score, assertions = _by_mode(settings, calls, fits)
        return GraderFinding(score=score, assertions=assertions)
    _check_settings(look, settings)
    every = [call for _, call in look.trace.all_calls]
    score, assertions = _by_mode_and_minimums(
        settings, every if settings.subagents else calls, fits
    )
    bounds = _bounds(settings, every, fits, subagent_caveat(look))
    kept = all(bound.passed for bound in bounds)
    return GraderFinding(score=score if kept else 0.0, assertions=(*assertions, *bounds))


def _check_settings(look: GraderInput, settings: TrajectorySettings) -> None:
    """Raises `InvalidGrader` for settings that would have no effect."""
    if settings.minimums and settings.mode != "any_order":
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: `minimums` belong to the mode any_order, "
            f"not to {settings.mode!r}."
        )
    for key, counts, least in (("minimums", settings.minimums, 1), ("max", settings.max, 0)):
        if odd := sorted(tool for tool, count in (counts or {}).items() if count < least):
            raise InvalidGrader(
                f"Grader {look.spec.name!r}: `{key}` of {odd!r} must be {least} or more."
            )
    if settings.status and not (settings.expected or settings.minimums):
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: `status` is that of calls in `expected` and `minimums`; "
            "bounds look at calls of every status."
        )


def _by_mode_and_minimums(
    settings: TrajectorySettings, calls: TracedCalls, fits: CallMatcher
) -> tuple[float, tuple[Assertion, ...]]:
    """The mode's checks; in `any_order`, `minimums` and `expected` are one list of checks."""
    if not (settings.minimums and settings.expected):
        return _by_mode(settings, calls, fits)
    _, expected = _check_sequence(settings, calls, fits, pair_calls)
    every = (*_minimums(settings, calls, fits), *expected)
    return passed_share(every), every


def _by_mode(
    settings: TrajectorySettings, calls: TracedCalls, fits: CallMatcher
) -> tuple[float, tuple[Assertion, ...]]:
    match settings.mode:
        case "any_order" if settings.minimums:
            counted = _minimums(settings, calls, fits)
            return passed_share(counted), counted
        case "subset":
            return _subset(settings.expected, calls, fits)
        case "exact" if not fits.compat:
            return _exact(settings, calls, fits)
        case "any_order" | "superset":
            find = _first_free if fits.compat else pair_calls
        case "exact":
            find = _by_index
        case "in_order":
            find = _first_by_name if fits.compat else _longest_common_sequence
    if not settings.expected and not fits.compat and not _has_bounds(settings):
        raise InvalidGrader(f"A trajectory {settings.mode!r} without `expected` checks nothing.")
    return _check_sequence(settings, calls, fits, find)


def _check_sequence(
    settings: TrajectorySettings,
    calls: TracedCalls,
    fits: CallMatcher,
    find: Callable[[ExpectedCalls, TracedCalls, CallMatcher], CallIndexes],
) -> tuple[float, tuple[Assertion, ...]]:
    """One check per item, and one more where it has a time limit that can be checked."""
    assertions: list[Assertion] = []
    places = find(settings.expected, calls, fits)
    for item, place in zip(settings.expected, places, strict=True):
        if place < 0:
            missing = ["no such call in its place"]
            if item.max_duration_ms is not None:
                missing.append("no call that could be in time")
            assertions += [Assertion(text=f"{item.tool}: {one}", passed=False) for one in missing]
            continue
        assertions.append(Assertion(text=f"{item.tool}: call {place + 1}", passed=True))
        assertions.extend(_in_time(item, calls[place], compat=fits.compat))
    return passed_share(assertions), tuple(assertions)


def _in_time(item: ExpectedCall, call: TracedCall, *, compat: bool) -> tuple[Assertion, ...]:
    """AgentV ignores a call of unknown duration."""
    limit, took = item.max_duration_ms, call.duration_ms
    if limit is None or (took is None and compat):
        return ()
    if took is None:
        text = f"{item.tool}: took an unknown time, at most {limit:g} ms allowed"
        return (Assertion(text=text, passed=False),)
    text = f"{item.tool}: took {took:g} ms of {limit:g} ms"
    return (Assertion(text=text, passed=took <= limit),)


def _exact(
    settings: TrajectorySettings, calls: TracedCalls, fits: CallMatcher
) -> tuple[float, tuple[Assertion, ...]]:
    """A call too many is as wrong as one too few."""
    _, assertions = _check_sequence(settings, calls, fits, _by_index)
    expected = len(settings.expected)
    surplus = (
        Assertion(text=f"{call.tool}: call {number} is one too many", passed=False)
        for number, call in enumerate(calls[expected:], start=expected + 1)
    )
    every = (*assertions, *surplus)
    return passed_share(every), every


def _subset(
    items: ExpectedCalls, calls: TracedCalls, fits: CallMatcher
) -> tuple[float, tuple[Assertion, ...]]:
    allowed = [any(fits.matches(item, call) for item in items) for call in calls]
    assertions = tuple(
        Assertion(
            text=f"{call.tool}: {'allowed' if fit else f'call {number} was not expected'}",
            passed=fit,
        )
        for number, (call, fit) in enumerate(zip(calls, allowed, strict=True), start=1)
    )
    return passed_share(assertions), assertions


def _minimums(
    settings: TrajectorySettings, calls: TracedCalls, fits: CallMatcher
) -> tuple[Assertion, ...]:
    found: list[Assertion] = []
    for tool, least in (settings.minimums or {}).items():
        count = sum(fits.counts(tool, call) for call in calls)
        ended = f" with status {fits.status}" if fits.status and not fits.compat else ""
        text = f"{tool}: called {_times(count)}{ended}, at least {least} wanted"
        found.append(Assertion(text=text, passed=count >= least))
    return tuple(found)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _has_bounds(settings: TrajectorySettings) -> bool:
    return bool(settings.forbidden or settings.max or settings.followed_by)


def _bounds(
    settings: TrajectorySettings, calls: TracedCalls, fits: CallMatcher, caveat: str
) -> tuple[Assertion, ...]:
    """Limits on calls of any status, subagents' included; one that is broken makes the score 0."""
    most = {**dict.fromkeys(settings.forbidden, 0), **settings.max}
    found: list[Assertion] = []
    for tool, limit in most.items():
        count = sum(fits.matches_tool(tool, call) for call in calls)
        text = f"{tool}: called {_times(count)}, at most {limit} allowed{caveat}"
        found.append(Assertion(text=text, passed=count <= limit))
    for tool, after in settings.followed_by.items():
        last = max(
            (i for i, call in enumerate(calls) if fits.matches_tool(tool, call)), default=None
        )
        if last is None:
            continue
        text = f"{tool}: its last call is followed by {after}{caveat}"
        kept = any(fits.matches_tool(after, call) for call in calls[last + 1 :])
        found.append(Assertion(text=text, passed=kept))
    return tuple(found)


def _by_index(items: ExpectedCalls, calls: TracedCalls, fits: CallMatcher) -> CallIndexes:
    return [
        index if index < len(calls) and fits.matches(item, calls[index]) else -1
        for index, item in enumerate(items)
    ]


def _first_by_name(items: ExpectedCalls, calls: TracedCalls, fits: CallMatcher) -> CallIndexes:
    """AgentV's single pass: takes the first call of that name, even if its arguments do not fit."""
    places: CallIndexes = []
    at = 0
    for item in items:
        while at < len(calls) and not fits.matches_tool(item.tool, calls[at]):
            at += 1
        fit = at < len(calls) and fits.matches(item, calls[at])
        places.append(at if fit else -1)
        at += 1
    return places


def _first_free(items: ExpectedCalls, calls: TracedCalls, fits: CallMatcher) -> CallIndexes:
    places: CallIndexes = []
    for item in items:
        free = (i for i, call in enumerate(calls) if i not in places and fits.matches(item, call))
        places.append(next(free, -1))
    return places


def _longest_common_sequence(
    items: ExpectedCalls, calls: TracedCalls, fits: CallMatcher
) -> CallIndexes:
    """The longest common subsequence: a missing or repeated call costs no other item."""
    best = [[0] * (len(calls) + 1) for _ in range(len(items) + 1)]
    for i in reversed(range(len(items))):
        for j in reversed(range(len(calls))):
            both = 1 + best[i + 1][j + 1] if fits.matches(items[i], calls[j]) else 0
            best[i][j] = max(both, best[i + 1][j], best[i][j + 1])
    places = [-1] * len(items)
    i = j = 0
    while i < len(items) and j < len(calls):
        if best[i][j] == best[i][j + 1]:
            j += 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            places[i] = j
            i, j = i + 1, j + 1
    return places


class _UsageLimit(Value, frozen=True, kw_only=True):
    what: str
    value: float | None
    most: float | None
    caveat: str = ""


def latency(look: GraderInput) -> GraderFinding:
    limit = read_grader_settings(look.spec, LatencyLimit).threshold
    return _within_limits([_UsageLimit(what="ms", value=look.trace.duration_ms, most=limit)])


def cost(look: GraderInput) -> GraderFinding:
    limit = read_grader_settings(look.spec, CostLimit).budget
    return _within_limits([_UsageLimit(what="USD", value=look.trace.cost_usd, most=limit)])


def token_usage(look: GraderInput) -> GraderFinding:
    limits, usage = read_grader_settings(look.spec, TokenLimits), look.trace.usage
    every = (
        _UsageLimit(what="tokens", value=usage and _all_tokens(usage), most=limits.max_total),
        _UsageLimit(what="input tokens", value=usage and usage.input, most=limits.max_input),
        _UsageLimit(what="output tokens", value=usage and usage.output, most=limits.max_output),
    )
    return _within_limits(_set_limits(look, every))


def execution_metrics(look: GraderInput) -> GraderFinding:
    """The share of limits that hold. AgentV leaves cached tokens out here, and only here."""
    limits, trace = read_grader_settings(look.spec, MetricLimits), look.trace
    usage = trace.usage
    tokens = usage and (usage.input + usage.output if look.compat else _all_tokens(usage))
    calls = len(trace.all_calls) if trace.messages else None
    every = (
        _UsageLimit(
            what="tool calls", value=calls, most=limits.max_tool_calls, caveat=subagent_caveat(look)
        ),
        _UsageLimit(what="model calls", value=llm_calls(trace), most=limits.max_llm_calls),
        _UsageLimit(what="tokens", value=tokens, most=limits.max_tokens),
        _UsageLimit(what="USD", value=trace.cost_usd, most=limits.max_cost_usd),
        _UsageLimit(what="ms", value=trace.duration_ms, most=limits.max_duration_ms),
    )
    wanted = limits.target_exploration_ratio
    set_ones = _set_limits(look, every, alone=wanted is None)
    checks = [*map(_limit_assertion, set_ones)]
    unknown = _any_unknown(set_ones)
    if wanted is not None:
        checks.append(_exploration_assertion(look, wanted, limits.exploration_tolerance))
        unknown = unknown or not trace.all_calls
    return GraderFinding(score=passed_share(checks), assertions=tuple(checks), broken=unknown)


def _within_limits(limits: Sequence[_UsageLimit]) -> GraderFinding:
    """`broken` if a value is unknown: `negate` must not make a pass of it."""
    found = all_or_nothing([_limit_assertion(limit) for limit in limits])
    return msgspec.structs.replace(found, broken=_any_unknown(limits))


def _any_unknown(limits: Sequence[_UsageLimit]) -> bool:
    return any(limit.value is None for limit in limits)


def _all_tokens(usage: TokenUsage) -> int:
    return usage.input + usage.output + usage.cached


def _set_limits(
    look: GraderInput, limits: Sequence[_UsageLimit], *, alone: bool = True
) -> Sequence[_UsageLimit]:
    """Those that are set. Raises `InvalidGrader` if there are none and nothing else is checked."""
    found = [limit for limit in limits if limit.most is not None]
    if not found and alone and not look.compat:
        raise InvalidGrader(f"Grader {look.spec.name!r} ({look.spec.type}) has no limit to check.")
    return found


def _limit_assertion(limit: _UsageLimit) -> Assertion:
    most = 0.0 if limit.most is None else limit.most
    if limit.value is None:
        text = f"{limit.what} unknown, at most {most:g}"
        return Assertion(text=text, passed=False)
    what = limit.what.removesuffix("s") if limit.value == 1 and limit.what != "ms" else limit.what
    text = f"{limit.value:g} {what}, at most {most:g}{limit.caveat}"
    return Assertion(text=text, passed=limit.value <= most)


def llm_calls(trace: Trace) -> int | None:
    """As the target counts them; otherwise, as in AgentV, one per message of the agent."""
    if trace.llm_calls is not None:
        return trace.llm_calls
    return sum(message.role == "assistant" for message in trace.messages) or None


def _exploration_assertion(look: GraderInput, target: float, tolerance: float) -> Assertion:
    calls = [call for _, call in look.trace.all_calls]
    if not calls:
        text = "No tool was called, so exploration is unknown"
        return Assertion(text=text, passed=False)
    ratio = sum(call.tool.casefold() in _EXPLORATION_TOOLS for call in calls) / len(calls)
    text = f"{ratio:.2f} of the calls explored, {target:g} ± {tolerance:g} wanted{subagent_caveat(look)}"
    return Assertion(text=text, passed=abs(ratio - target) <= tolerance)


def skill_trigger(look: GraderInput) -> GraderFinding:
    settings = read_grader_settings(look.spec, SkillSettings)
    used = any(_uses_skill(call, settings.skill) for _, call in look.trace.all_calls)
    text = f"Skill {settings.skill!r} was {'used' if used else f'not used{subagent_caveat(look)}'}"
    return single_check(text, passed=used is settings.should_trigger)


def _uses_skill(call: TracedCall, skill: str) -> bool:
    """Called as a skill, read as a file, or named in the output of a tool."""
    folder = f"skills/{skill}/"
    given = call.input if is_object(call.input) else NO_KEYS
    match call.tool.casefold():
        case "skill":
            if skill in (given.get("skill"), given.get("name")):
                return True
        case "read":
            if any(folder in str(given.get(key, "")) for key in _PATH_KEYS):
                return True
        case _:
            pass
    return isinstance(call.output, str) and folder in call.output


TRACE_GRADERS = (
    GraderKind(
        name="tool-trajectory",
        settings=TrajectorySettings,
        check=tool_trajectory,
        score="share of what was expected",
    ),
    GraderKind(name="latency", settings=LatencyLimit, check=latency, score="1 or 0"),
    GraderKind(name="cost", settings=CostLimit, check=cost, score="1 or 0"),
    GraderKind(
        name="token-usage",
        settings=TokenLimits,
        any_of=True,
        check=token_usage,
        score="1 if all hold",
    ),
    GraderKind(
        name="execution-metrics",
        settings=MetricLimits,
        any_of=True,
        check=execution_metrics,
        score="share that holds",
    ),
    GraderKind(name="skill-trigger", settings=SkillSettings, check=skill_trigger, score="1 or 0"),
)
