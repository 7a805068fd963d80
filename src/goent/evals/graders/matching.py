"""Is this call the one that was expected? Its name, its arguments, its status."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from goent.domain.types import Value
from goent.evals.graders.findings import Look, Misfit
from goent.evals.graders.patterns import is_found
from goent.evals.graders.settings import ArgsMatch, ExpectedCall, Trajectory
from goent.evals.graders.values import NO_KEYS, absent, at, is_array, is_object, same
from goent.evals.traces import CallStatus, TracedCall

_ALSO: Final[Mapping[str, frozenset[str]]] = {
    "edit": frozenset({"patch", "applypatch", "multiedit"}),
    "bash": frozenset({"shell"}),
}
"""Tools that do what another name means. Which of them an agent has depends on its model."""


class Matcher(Value, frozen=True, kw_only=True):
    """How items are compared with calls: what the item says, else the grader, else the dialect."""

    args: ArgsMatch
    status: CallStatus | None
    compat: bool

    def named(self, pattern: str, call: TracedCall) -> bool:
        """Agents spell tools as they like: outside AgentV's rules, case does not count and `*` fits all.

        `edit` also means those that edit in another way; who writes `patch` means that one.
        """
        if self.compat:
            return pattern == call.tool
        spelt = fnmatchcase(call.tool.casefold(), pattern.casefold())
        return spelt or _plain(call.tool) in _ALSO.get(pattern.casefold(), ())

    def counts(self, tool: str, call: TracedCall) -> bool:
        """Where calls of a tool are counted: with the status that the grader asks for."""
        return self.named(tool, call) and self._status(self.status, call)

    def fits(self, item: ExpectedCall, call: TracedCall) -> bool:
        return (
            self.named(item.tool, call)
            and self._args(item, call)
            and self._status(item.status or self.status, call)
        )

    def _args(self, item: ExpectedCall, call: TracedCall) -> bool:
        if item.args is None or item.args == "any":
            return True
        how = self.args if item.args_match is None else item.args_match
        given = call.input if self.compat else _respelt(item.args, call.input)
        return _args_fit(item.args, given, how)

    def _status(self, wanted: CallStatus | None, call: TracedCall) -> bool:
        return self.compat or wanted is None or wanted == call.status


def matcher(look: Look, settings: Trajectory) -> Matcher:
    default = "superset" if look.case.form == "seed" else "exact"
    how = default if settings.args_match is None else settings.args_match
    if look.compat and {how, *(item.args_match for item in settings.expected)} & {"glob", "regex"}:
        raise Misfit(f"Grader {look.spec.name!r}: AgentV knows no patterns in arguments.")
    for item in settings.expected:
        own = how if item.args_match is None else item.args_match
        if own == "regex":
            _check_patterns(item.args)
        if isinstance(own, tuple) and is_object(item.args) and not look.compat:
            _check_paths(look, item.args, own)
    return Matcher(args=how, status=settings.status, compat=look.compat)


def _check_paths(look: Look, args: Mapping[str, object], paths: Sequence[str]) -> None:
    """What is neither expected nor given would be the same in every call."""
    lacking = [path for path in paths if absent(at(args, path))]
    if lacking or not paths:
        raise Misfit(
            f"Grader {look.spec.name!r}: `args_match` names {lacking!r}, "
            f"and `args` have only {sorted(args)!r}."
        )


def _check_patterns(args: object) -> None:
    """Those that no call was compared with would be found much later, or never."""
    if isinstance(args, str):
        _found(args, "")
    for part in args.values() if is_object(args) else args if is_array(args) else ():
        _check_patterns(part)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "")


def _respelt(expected: object, given: object) -> object:
    """What was given, with its keys spelt as they are expected: `filePath` for `file_path`.

    Only where the spelt key is not there, so that nothing stands for two.
    """
    if is_array(expected) and is_array(given):
        pairs = zip(expected, given, strict=False)
        return [*(_respelt(one, other) for one, other in pairs), *given[len(expected) :]]
    if not is_object(expected) or not is_object(given):
        return given
    missing = {_plain(key): key for key in expected if key not in given}
    found: dict[str, object] = {}
    for key, value in given.items():
        name = key if key in expected else missing.pop(_plain(key), key)
        found[name] = _respelt(expected.get(name), value)
    return found


def _args_fit(expected: Mapping[str, object], actual: object, how: ArgsMatch) -> bool:
    if how == "ignore":
        return True
    if isinstance(how, tuple):
        return all(same(at(expected, path), at(actual, path)) for path in how)
    given = NO_KEYS if actual is None else actual
    if not is_object(given):
        return False
    match how:
        case "superset":
            return all(key in given and same(expected[key], given[key]) for key in expected)
        case "subset":
            return all(key in expected and same(expected[key], given[key]) for key in given)
        case "glob" | "regex":
            return all(key in given and _like(expected[key], given[key], how) for key in expected)
        case _:
            return same(expected, given)


def _like(pattern: object, value: object, how: str) -> bool:
    if isinstance(pattern, str) and isinstance(value, str):
        return fnmatchcase(value, pattern) if how == "glob" else _found(pattern, value)
    if is_object(pattern) and is_object(value):
        return all(key in value and _like(pattern[key], value[key], how) for key in pattern)
    if is_array(pattern) and is_array(value):
        pairs = zip(pattern, value, strict=False)
        return len(pattern) == len(value) and all(_like(one, other, how) for one, other in pairs)
    return same(pattern, value)


def _found(pattern: str, value: str) -> bool:
    try:
        return is_found(re.compile(pattern), value)
    except re.error as error:
        raise Misfit(f"{pattern!r} is no regular expression: {error}.") from None


def _late(item: ExpectedCall, call: TracedCall) -> bool:
    limit, took = item.max_duration_ms, call.duration_ms
    return limit is not None and (took is None or took > limit)


def pairing(items: Sequence[ExpectedCall], calls: Sequence[TracedCall], fits: Matcher) -> list[int]:
    """The call of each item, or -1: as many as can be paired, each call once.

    Of those that fit, one that is in time is tried before one that is not, and a free one before
    one that another item would have to give up.
    """
    holder: dict[int, int] = {}

    def place(item: int, tried: set[int]) -> bool:
        fitting = [i for i, call in enumerate(calls) if fits.fits(items[item], call)]
        for index in sorted(fitting, key=lambda i: (_late(items[item], calls[i]), i in holder)):
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
