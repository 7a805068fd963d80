"""Reads `routing.yaml`: the rules in order of evaluation, and those that can never match."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from goent.config.provider_settings import METHODS, TASK_TYPES
from goent.config.settings_tree import Mention, SettingPlace, SettingsFields
from goent.domain.input_mistakes import suggestion
from goent.domain.settings import RoutingRule
from goent.domain.types import Value

COMPLEXITIES: Final[Mapping[str, str]] = {
    name: name for name in ("trivial", "simple", "medium", "complex", "high")
}


_THRESHOLD: Final = re.compile(r"(>=?)?\s*(\d{1,12})")


_EVERYTHING: Final = "to match every task write `match: {default: true}`"


class RuleEntry(Value, frozen=True, kw_only=True):
    """A rule, where it is, and where it names its provider."""

    rule: RoutingRule
    place: SettingPlace
    provider: Mention | None = None


class _Match(Value, frozen=True, kw_only=True):
    types: tuple[str, ...] = ()
    complexity: tuple[str, ...] = ()
    min_files: int | None = None
    min_context: int | None = None
    keywords: tuple[str, ...] = ()
    max_cost: float | None = None


class _Action(Value, frozen=True, kw_only=True):
    target: RoutingRule
    provider: Mention | None


def read_routing(fields: SettingsFields) -> tuple[RuleEntry, ...] | None:
    """The rules in order of evaluation; None where the file has none of either shape."""
    shape = fields.one_of("routing_rules", "rules")
    in_file_order = fields.rows("routing_rules", _flat_rule)
    by_priority = sorted(fields.rows("rules", _nested_rule), key=lambda r: -(r.rule.priority or 0))
    if shape is None:
        return None
    for rule in (*in_file_order, *by_priority):
        _note_duplicate_id(rule, (*in_file_order, *by_priority), fields)
    return in_file_order if shape == "routing_rules" else tuple(by_priority)


def _note_duplicate_id(rule: RuleEntry, rules: Iterable[RuleEntry], fields: SettingsFields) -> None:
    """An id belongs to one rule; the mistake is reported at the later one."""
    first = next(other for other in rules if other.rule.id == rule.rule.id)
    places = sorted((first.place, rule.place), key=lambda place: place.line)
    if rule.rule.id and first is not rule:
        earlier, later = places
        fields.problems.note(
            later.entry("id"), f"{rule.rule.id!r} is also the id of another rule ({earlier})"
        )


def unreachable_rules(rules: Sequence[RuleEntry]) -> Iterator[str]:
    """Warnings about rules that can never match, because an earlier one matches the same tasks."""
    for at, later in enumerate(rules):
        earlier = next((e for e in rules[:at] if _covers(e.rule, later.rule)), None)
        if earlier:
            name = f"rule {earlier.rule.id!r}" if earlier.rule.id else "the rule"
            yield (
                f"{later.place}: can never match: {name} at line {earlier.place.line} comes before "
                "it and matches all that it does; change their order, or remove one"
            )


def _covers(earlier: RoutingRule, later: RoutingRule) -> bool:
    return (
        earlier.max_cost is None
        and _wider(earlier.types, later.types)
        and _wider(earlier.complexity, later.complexity)
        and _wider(earlier.keywords, later.keywords)
        and _lower(earlier.min_files, later.min_files)
        and _lower(earlier.min_context, later.min_context)
    )


def _wider(earlier: tuple[str, ...], later: tuple[str, ...]) -> bool:
    return not earlier or (bool(later) and set(later) <= set(earlier))


def _lower(earlier: int | None, later: int | None) -> bool:
    return not earlier or (later is not None and later >= earlier)


def _flat_rule(fields: SettingsFields) -> RuleEntry:
    return _build_rule(fields, action=_action(fields), priority=None)


def _nested_rule(fields: SettingsFields) -> RuleEntry:
    if not fields.has("action"):
        fields.note_mistake("action", "is missing; name a method, a provider or a model")
    priority = fields.integer("priority", None, least=-(10**6))
    return _build_rule(fields, action=fields.section("action", _action), priority=priority)


def _build_rule(fields: SettingsFields, *, action: _Action, priority: int | None) -> RuleEntry:
    if fields.has("match"):
        match = fields.section("match", _match)
    else:
        match = _Match()
        fields.note_mistake("match", f"is missing; {_EVERYTHING}")
    return RuleEntry(
        rule=RoutingRule(
            id=fields.text("id", ""),
            priority=priority,
            types=match.types,
            complexity=match.complexity,
            min_files=match.min_files,
            min_context=match.min_context,
            keywords=match.keywords,
            max_cost=match.max_cost,
            method=action.target.method,
            provider=action.target.provider,
            model=action.target.model,
        ),
        place=fields.place,
        provider=action.provider,
    )


def _action(fields: SettingsFields) -> _Action:
    if not any([fields.has("method"), fields.has("provider"), fields.has("model")]):
        fields.note_mistake("provider", "is missing; a rule names a method, a provider or a model")
    provider = fields.mention("provider")
    target = RoutingRule(
        method=fields.choice("method", METHODS, None),
        provider=provider.name if provider else None,
        model=fields.text("model", None),
    )
    return _Action(target=target, provider=provider)


def _match(fields: SettingsFields) -> _Match:
    everything = fields.flag("default", default=False)
    conditions = [key for key in fields.keys if key != "default"]
    if everything and conditions:
        fields.note_mistake("default", f"matches every task, so {conditions[0]!r} has no effect")
    if not everything and not conditions:
        fields.note_mistake("default", f"matches no task; {_EVERYTHING}")
    cost = fields.number("max_cost", None)
    return _Match(
        types=_known_names(fields, "type", TASK_TYPES),
        complexity=_known_names(fields, "complexity", COMPLEXITIES),
        min_files=_threshold(fields, "files", "file_count"),
        min_context=_threshold(fields, "context_tokens", "context_size"),
        keywords=fields.texts("keywords"),
        max_cost=None if cost is None else float(cost),
    )


def _known_names(fields: SettingsFields, key: str, names: Mapping[str, str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for mention in fields.mentions(key):
        name = mention.name.lower()
        if name in names:
            found[names[name]] = None
        else:
            message = f"unknown {key} {mention.name!r}; {suggestion(name, names)}"
            fields.problems.note(mention.place, message)
    return tuple(found)


def _threshold(fields: SettingsFields, *spellings: str) -> int | None:
    """`3`, `">=3"` and `">2"` are the same."""
    key = fields.one_of(*spellings)
    written = fields.text(key, None) if key else None
    if key is None or written is None:
        return None
    match = _THRESHOLD.fullmatch(written)
    if match is None:
        fields.note_mistake(key, f"{written!r} is not a threshold such as 3, '>=3' or '>2'")
        return None
    sign, figure = match.groups()
    return int(figure) + (sign == ">")
