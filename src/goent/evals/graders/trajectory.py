"""Did the agent call the tools that it should, in the order that counts?"""

from collections.abc import Callable, Sequence

from goent.evals.graders.findings import (
    Finding,
    Look,
    Misfit,
    broken,
    failed,
    passed,
    share,
    unseen,
)
from goent.evals.graders.matching import Matcher, matcher, pairing
from goent.evals.graders.settings import ExpectedCall, Trajectory, read
from goent.evals.grades import Assertion
from goent.evals.traces import TracedCall

Items = Sequence[ExpectedCall]
Calls = Sequence[TracedCall]
Places = list[int]
"""Of each expected item: the index of its call, or -1."""


def tool_trajectory(look: Look) -> Finding | None:
    settings = read(look.spec, Trajectory)
    fits = matcher(look, settings)
    if look.compat and settings.mode == "any_order" and not settings.minimums:
        return None
    if not look.trace.messages:
        return broken("There is no trace.")
    calls = look.trace.calls
    if look.compat:
        score, assertions = _by_mode(settings, calls, fits)
        return Finding(score=score, assertions=assertions)
    _sensible(look, settings)
    every = [call for _, call in look.trace.all_calls]
    score, assertions = _by_both(settings, every if settings.subagents else calls, fits)
    bounds = _bounds(settings, every, fits, unseen(look))
    kept = all(bound.passed for bound in bounds)
    return Finding(score=score if kept else 0.0, assertions=(*assertions, *bounds))


def _sensible(look: Look, settings: Trajectory) -> None:
    """Raises `Misfit` for what would be read past."""
    if settings.minimums and settings.mode != "any_order":
        raise Misfit(
            f"Grader {look.spec.name!r}: `minimums` belong to the mode any_order, "
            f"not to {settings.mode!r}."
        )
    for key, counts, least in (("minimums", settings.minimums, 1), ("max", settings.max, 0)):
        if odd := sorted(tool for tool, count in (counts or {}).items() if count < least):
            raise Misfit(f"Grader {look.spec.name!r}: `{key}` of {odd!r} must be {least} or more.")
    if settings.status and not (settings.expected or settings.minimums):
        raise Misfit(
            f"Grader {look.spec.name!r}: `status` is that of calls in `expected` and `minimums`; "
            "bounds look at calls of every status."
        )


def _by_both(
    settings: Trajectory, calls: Calls, fits: Matcher
) -> tuple[float, tuple[Assertion, ...]]:
    """The mode's checks; in any order, the counts and the items that are expected are one list."""
    if not (settings.minimums and settings.expected):
        return _by_mode(settings, calls, fits)
    _, expected = _sequence(settings, calls, fits, pairing)
    every = (*_minimums(settings, calls, fits), *expected)
    return share(every), every


def _by_mode(
    settings: Trajectory, calls: Calls, fits: Matcher
) -> tuple[float, tuple[Assertion, ...]]:
    match settings.mode:
        case "any_order" if settings.minimums:
            counted = _minimums(settings, calls, fits)
            return share(counted), counted
        case "subset":
            return _subset(settings.expected, calls, fits)
        case "exact" if not fits.compat:
            return _exact(settings, calls, fits)
        case "any_order" | "superset":
            find = _greedy if fits.compat else pairing
        case "exact":
            find = _by_index
        case "in_order":
            find = _walk if fits.compat else _longest
    if not settings.expected and not fits.compat and not _has_bounds(settings):
        raise Misfit(f"A trajectory {settings.mode!r} without `expected` checks nothing.")
    return _sequence(settings, calls, fits, find)


def _sequence(
    settings: Trajectory,
    calls: Calls,
    fits: Matcher,
    find: Callable[[Items, Calls, Matcher], Places],
) -> tuple[float, tuple[Assertion, ...]]:
    """One check per item, and one more where it has a limit of time that can be checked."""
    assertions: list[Assertion] = []
    places = find(settings.expected, calls, fits)
    for item, place in zip(settings.expected, places, strict=True):
        if place < 0:
            assertions.append(failed(f"{item.tool}: no such call in its place"))
            if item.max_duration_ms is not None:
                assertions.append(failed(f"{item.tool}: no call that could be in time"))
            continue
        assertions.append(passed(f"{item.tool}: call {place + 1}"))
        assertions.extend(_in_time(item, calls[place], compat=fits.compat))
    return share(assertions), tuple(assertions)


def _in_time(item: ExpectedCall, call: TracedCall, *, compat: bool) -> tuple[Assertion, ...]:
    """AgentV looks past a call of which it is not known how long it took."""
    limit, took = item.max_duration_ms, call.duration_ms
    if limit is None or (took is None and compat):
        return ()
    if took is None:
        return (failed(f"{item.tool}: it is not known how many ms it took of {limit:g}"),)
    text = f"{item.tool}: took {took:g} ms of {limit:g} ms"
    return (passed(text) if took <= limit else failed(text),)


def _exact(
    settings: Trajectory, calls: Calls, fits: Matcher
) -> tuple[float, tuple[Assertion, ...]]:
    """A call too many is as wrong as one too few."""
    _, assertions = _sequence(settings, calls, fits, _by_index)
    surplus = [
        failed(f"{call.tool}: call {index + 1} is one too many")
        for index, call in enumerate(calls)
        if index >= len(settings.expected)
    ]
    every = (*assertions, *surplus)
    return share(every), every


def _subset(items: Items, calls: Calls, fits: Matcher) -> tuple[float, tuple[Assertion, ...]]:
    assertions = tuple(
        passed(f"{call.tool}: allowed")
        if any(fits.fits(item, call) for item in items)
        else failed(f"{call.tool}: call {index + 1} was not to be expected")
        for index, call in enumerate(calls)
    )
    return share(assertions), assertions


def _minimums(settings: Trajectory, calls: Calls, fits: Matcher) -> tuple[Assertion, ...]:
    found: list[Assertion] = []
    for tool, least in (settings.minimums or {}).items():
        count = sum(fits.counts(tool, call) for call in calls)
        ended = f" with status {fits.status}" if fits.status and not fits.compat else ""
        text = f"{tool}: called {_times(count)}{ended}, at least {least} wanted"
        found.append(passed(text) if count >= least else failed(text))
    return tuple(found)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _has_bounds(settings: Trajectory) -> bool:
    return bool(settings.forbidden or settings.max or settings.followed_by)


def _bounds(
    settings: Trajectory, calls: Calls, fits: Matcher, caveat: str
) -> tuple[Assertion, ...]:
    """What must not happen, however good the rest is, whoever does it, and whether or not it succeeds.

    Each says what is not known.
    """
    most = {**dict.fromkeys(settings.forbidden, 0), **settings.max}
    found: list[Assertion] = []
    for tool, limit in most.items():
        count = sum(fits.named(tool, call) for call in calls)
        text = f"{tool}: called {_times(count)}, at most {limit} allowed{caveat}"
        found.append(passed(text) if count <= limit else failed(text))
    for tool, after in settings.followed_by.items():
        last = max((i for i, call in enumerate(calls) if fits.named(tool, call)), default=None)
        if last is None:
            continue
        text = f"{tool}: its last call is followed by {after}{caveat}"
        kept = any(fits.named(after, call) for call in calls[last + 1 :])
        found.append(passed(text) if kept else failed(text))
    return tuple(found)


def _by_index(items: Items, calls: Calls, fits: Matcher) -> Places:
    return [
        index if index < len(calls) and fits.fits(item, calls[index]) else -1
        for index, item in enumerate(items)
    ]


def _walk(items: Items, calls: Calls, fits: Matcher) -> Places:
    """AgentV's one pass: the first call of that name is taken, whether its arguments fit or not."""
    places: Places = []
    at = 0
    for item in items:
        while at < len(calls) and not fits.named(item.tool, calls[at]):
            at += 1
        fit = at < len(calls) and fits.fits(item, calls[at])
        places.append(at if fit else -1)
        at += 1
    return places


def _greedy(items: Items, calls: Calls, fits: Matcher) -> Places:
    places: Places = []
    for item in items:
        free = (i for i, call in enumerate(calls) if i not in places and fits.fits(item, call))
        places.append(next(free, -1))
    return places


def _longest(items: Items, calls: Calls, fits: Matcher) -> Places:
    """The longest common subsequence: what is missing, or was tried before, costs no other item."""
    best = [[0] * (len(calls) + 1) for _ in range(len(items) + 1)]
    for i in reversed(range(len(items))):
        for j in reversed(range(len(calls))):
            both = 1 + best[i + 1][j + 1] if fits.fits(items[i], calls[j]) else 0
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
