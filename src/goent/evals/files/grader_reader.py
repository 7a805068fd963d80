"""Reads a list of graders, with includes and shorthands expanded, and checks their settings."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Final

from goent.config.settings_tree import (
    Items,
    Node,
    Problems,
    Scalar,
    SettingPlace,
    SettingsFields,
    Table,
    describe_node,
    read_table,
    suggestion,
)
from goent.domain.types import Value
from goent.evals.files.file_source import FileSource, as_text, plain_value, suite_location
from goent.evals.graders.grader_settings import ExpectedCall, ExpectedField, GraderSettings
from goent.evals.graders.judge_prompt import RubricEntry, ScoreRange
from goent.evals.graders.target_judge import JUDGED_TYPES
from goent.evals.suites import SETTINGS_FOLDERS, GraderSpec


class GraderKind(Value, frozen=True, kw_only=True):
    """The settings that a grader must have, and those that it may have."""

    needed: tuple[str, ...] = ()
    known: tuple[str, ...] = ()


_TEXT_KIND: Final = GraderKind(needed=("value",))
_SCRIPT_KIND: Final = GraderKind(needed=("command",), known=("cwd", "timeout_seconds", "config"))
_JUDGE_KIND: Final = GraderKind(known=("prompt", "rubrics", "criteria", "target", "model"))

GRADER_KINDS: Final[Mapping[str, GraderKind]] = {
    "contains": _TEXT_KIND,
    "contains-any": _TEXT_KIND,
    "contains-all": _TEXT_KIND,
    "icontains": _TEXT_KIND,
    "icontains-any": _TEXT_KIND,
    "icontains-all": _TEXT_KIND,
    "starts-with": _TEXT_KIND,
    "ends-with": _TEXT_KIND,
    "equals": _TEXT_KIND,
    "regex": GraderKind(needed=("value",), known=("flags",)),
    "is-json": GraderKind(),
    "tool-trajectory": GraderKind(
        needed=("mode",),
        known=(
            *("expected", "minimums", "args_match", "status"),
            *("forbidden", "max", "followed_by", "subagents"),
        ),
    ),
    "field-accuracy": GraderKind(needed=("fields",), known=("aggregation",)),
    "latency": GraderKind(needed=("threshold",)),
    "cost": GraderKind(needed=("budget",)),
    "token-usage": GraderKind(known=("max_total", "max_input", "max_output")),
    "execution-metrics": GraderKind(
        known=(
            "max_tool_calls",
            "max_llm_calls",
            "max_tokens",
            "max_cost_usd",
            "max_duration_ms",
            "target_exploration_ratio",
            "exploration_tolerance",
        )
    ),
    "skill-trigger": GraderKind(needed=("skill",), known=("should_trigger",)),
    "composite": GraderKind(known=("aggregator",)),
    "code-grader": _SCRIPT_KIND,
    "llm-grader": _JUDGE_KIND,
    "rubrics": GraderKind(needed=("criteria",), known=("target", "model", "prompt")),
}

GRADER_ALIASES: Final[Mapping[str, str]] = {
    "code": "code-grader",
    "code-judge": "code-grader",
    "script": "code-grader",
    "llm-judge": "llm-grader",
    "llm": "llm-grader",
    "llm-rubric": "llm-grader",
}

TRAJECTORY_MODES: Final = ("any_order", "in_order", "exact", "superset", "subset")
AGGREGATORS: Final = ("weighted_average", "threshold", "code-grader", "llm-grader")
BOOLEAN_SETTINGS: Final = ("should_trigger", "subagents")
TEXT_GRADERS: Final = tuple(kind for kind, known in GRADER_KINDS.items() if "value" in known.needed)


def check_settings(fields: SettingsFields, kind: str) -> None:
    if check := _CHECKS.get(kind):
        check(fields)


def check_criteria(node: Node | None, problems: Problems) -> None:
    """The items of a rubric: texts, or tables that say no more than they may."""
    for item in node.items if isinstance(node, Items) else ():
        if isinstance(item, Table):
            read_table(item, _check_criterion, problems)


def read_share(fields: SettingsFields, key: str) -> float | None:
    """A number from 0 to 1."""
    value = fields.amount(key, None)
    if value is not None and value > 1:
        fields.note_mistake(key, f"must be from 0 to 1, not {value:g}")
        return None
    return value


def accept_all(fields: SettingsFields) -> None:
    """Nothing in it is unknown: somebody else judges it."""
    for key in fields.keys:
        fields.has(key)


def _accept_only(form: type[GraderSettings]) -> Callable[[SettingsFields], None]:
    """What a form has no place for is unknown; what its values are is judged by who reads them."""

    def take(fields: SettingsFields) -> None:
        for key in form.__struct_fields__:
            fields.has(key)

    return take


def _check_criterion(fields: SettingsFields) -> None:
    _accept_only(RubricEntry)(fields)
    if fields.shape("score_ranges") == "list":
        fields.rows("score_ranges", _accept_only(ScoreRange))


def _check_trajectory(fields: SettingsFields) -> None:
    fields.choice("mode", TRAJECTORY_MODES, None)
    fields.rows("expected", _accept_only(ExpectedCall))
    expect_shape(fields, "forbidden", "list")
    for key in ("minimums", "max", "followed_by"):
        expect_shape(fields, key, "table")


def _check_judge(fields: SettingsFields) -> None:
    for key in ("criteria", "rubrics"):
        check_criteria(fields.node(key), fields.problems)


def _check_rubrics(fields: SettingsFields) -> None:
    expect_shape(fields, "criteria", "list")
    _check_judge(fields)


def _limits_check(kind: str) -> Callable[[SettingsFields], None]:
    def check(fields: SettingsFields) -> None:
        keys = GRADER_KINDS[kind].known
        for key in keys:
            fields.amount(key, None)
        if not any(fields.has(key) for key in keys):
            fields.note_mistake(
                "type", f"{kind} has nothing to check; give one of {', '.join(keys)}"
            )

    return check


def _amount_check(key: str) -> Callable[[SettingsFields], None]:
    def check(fields: SettingsFields) -> None:
        fields.amount(key, None)

    return check


def _list_check(key: str) -> Callable[[SettingsFields], None]:
    return lambda fields: expect_shape(fields, key, "list")


def _check_fields(fields: SettingsFields) -> None:
    fields.rows("fields", _accept_only(ExpectedField))


def expect_shape(fields: SettingsFields, key: str, shape: str) -> None:
    found = fields.shape(key)
    if found not in {None, shape}:
        fields.note_mistake(key, f"expected a {shape}, not a {found}")


_CHECKS: Final[Mapping[str, Callable[[SettingsFields], None]]] = {
    "tool-trajectory": _check_trajectory,
    "latency": _amount_check("threshold"),
    "cost": _amount_check("budget"),
    "token-usage": _limits_check("token-usage"),
    "execution-metrics": _limits_check("execution-metrics"),
    "field-accuracy": _check_fields,
    "llm-grader": _check_judge,
    "rubrics": _check_rubrics,
    "contains-any": _list_check("value"),
    "contains-all": _list_check("value"),
    "icontains-any": _list_check("value"),
    "icontains-all": _list_check("value"),
}

DEEPEST_INCLUDE: Final = 3
GRADER_LISTS: Final = ("assertions", "evaluators", "assert")


def read_graders(node: Node | None, source: FileSource, depth: int = 0) -> tuple[GraderSpec, ...]:
    """The graders of a list. Plain texts in it are, together, one rubric."""
    if node is None:
        return ()
    if not isinstance(node, Items):
        source.problems.note(node.place, f"expected a list of graders, not {describe_node(node)}")
        return ()
    found: list[GraderSpec] = []
    texts = [item for item in node.items if isinstance(item, Scalar)]
    for item in node.items:
        if isinstance(item, Scalar):
            if item is texts[0]:
                found.append(rubric_grader(Items(place=item.place, items=tuple(texts)), source))
        elif isinstance(item, Items):
            source.problems.note(item.place, "expected a grader, such as {type: contains, …}")
        elif "include" in item.entries:
            found += read_table(
                item, lambda fields: _read_include(fields, source, depth), source.problems
            )
        else:
            before = source.problems.mistake_count
            grader = read_table(
                item, lambda fields: _read_grader(fields, source, depth), source.problems
            )
            if grader:
                found.append(grader)
            if grader and source.problems.mistake_count > before:
                source.refused.add(grader.place)
    return tuple(found)


def rubric_grader(criteria: Node, source: FileSource) -> GraderSpec:
    """A judge that goes through a list of criteria."""
    if not isinstance(criteria, Items):
        source.problems.note(criteria.place, f"expected a list, not {describe_node(criteria)}")
    before = source.problems.mistake_count
    check_criteria(criteria, source.problems)
    if source.problems.mistake_count > before:
        source.refused.add(suite_location(criteria.place))
    settings = {"criteria": plain_value(criteria)}
    return GraderSpec(
        type="rubrics", name="rubrics", settings=settings, place=suite_location(criteria.place)
    )


def implicit_grader(place: SettingPlace) -> GraderSpec:
    """What judges a case that only says what good looks like."""
    return GraderSpec(type="llm-grader", name="llm-grader", place=suite_location(place))


def can_score(grader: GraderSpec) -> bool:
    """Whether it can ever have a say: a weight, and something to look at."""
    if grader.weight <= 0:
        return False
    if grader.type == "composite":
        return any(can_score(member) for member in grader.members)
    if grader.type == "tool-trajectory" and grader.settings.get("mode") == "any_order":
        keys = ("minimums", "expected", "max", "forbidden", "followed_by")
        return any(grader.settings.get(key) for key in keys)
    return True


def _read_include(fields: SettingsFields, source: FileSource, depth: int) -> tuple[GraderSpec, ...]:
    mention = fields.mention("include")
    fields.text("type", None)
    if mention is None:
        return ()
    if depth >= DEEPEST_INCLUDE:
        fields.note_mistake("include", f"includes are more than {DEEPEST_INCLUDE} levels deep")
        return ()
    path = _find_template(mention.name, Path(fields.place.file).parent)
    if not _is_path(mention.name) and ".." in PurePath(mention.name).parts:
        fields.note_mistake(
            "include", f"{mention.name!r} leads out of the templates; name a file, x.yaml"
        )
        return ()
    if path is None:
        where = f".goent/templates/{mention.name}.yaml"
        fields.note_mistake(
            "include", f"there is no template {mention.name!r}; write it to {where}"
        )
        return ()
    before = source.problems.mistake_count
    node = source.document(path, mention.place)
    if node is None and source.problems.mistake_count == before:
        fields.note_mistake("include", f"the template {mention.name!r} is empty; list its graders")
    if not isinstance(node, Table):
        return read_graders(node, source, depth + 1)

    def read(inner: SettingsFields) -> tuple[GraderSpec, ...]:
        inner.text("name", None)
        inner.text("description", None)
        key = inner.one_of(*GRADER_LISTS)
        if key is None:
            inner.note_mistake("assertions", "is missing; list the graders of this template")
        return read_graders(inner.node(key) if key else None, source, depth + 1)

    return read_table(node, read, source.problems)


def _is_path(name: str) -> bool:
    """Of a file, seen from the suite; else it is the name of a template."""
    return name.endswith((".yaml", ".yml"))


def _find_template(name: str, start: Path) -> Path | None:
    if not re.fullmatch(r"[\w./ -]+", name):
        return None
    if _is_path(name):
        path = start / name
        return path if path.is_file() else None
    here = start.resolve()
    for folder in (here, *here.parents):
        for hidden in SETTINGS_FOLDERS:
            for ending in (".yaml", ".yml"):
                path = folder / hidden / "templates" / f"{name}{ending}"
                if path.is_file():
                    return path
    return None


def _read_grader(fields: SettingsFields, source: FileSource, depth: int) -> GraderSpec | None:
    written = fields.required_text("type", "name a grader, such as contains")
    kebab = written.replace("_", "-")
    kind = GRADER_ALIASES.get(kebab, kebab)
    name = fields.text("name", "")
    required = _read_required(fields)
    weight = fields.amount("weight", 1.0)
    min_score = read_share(fields, "min_score")
    negate = fields.flag("negate", default=False)
    members: tuple[GraderSpec, ...] = ()
    before = source.problems.mistake_count
    if kind == "composite":
        key = fields.one_of(*GRADER_LISTS)
        members = read_graders(fields.node(key) if key else None, source, depth)
        if not members:
            fields.note_mistake(key or "assertions", "a composite needs members; list its graders")
    if kind not in GRADER_KINDS:
        accept_all(fields)
        if written:
            remedy = suggestion(kebab, tuple(GRADER_KINDS))
            fields.note_mistake("type", f"{written!r} is no grader, or not supported; {remedy}")
        return None
    known = members if source.problems.mistake_count == before else ()
    settings = _read_settings(fields, kind, tuple(member.name for member in known))
    return GraderSpec(
        type=kind,
        name=name or _default_name(kind, settings.get("value")),
        settings=settings,
        weight=weight,
        required=required,
        min_score=min_score,
        negate=negate,
        members=members,
        place=suite_location(fields.place),
    )


def _read_settings(
    fields: SettingsFields, kind: str, members: tuple[str, ...]
) -> dict[str, object]:
    known = GRADER_KINDS[kind]
    settings: dict[str, object] = {}
    if "command" in known.needed and (key := fields.one_of("command", "script")):
        settings["command"] = _read_command(fields, key)
    for key in (*known.needed, *known.known):
        node = fields.node(key)
        if key == "aggregator" and node is not None:
            settings[key] = fields.section(key, lambda inner: _read_aggregator(inner, members))
        elif node is not None and key not in settings:
            settings[key] = _setting_value(kind, key, node)
        elif key in known.needed and key not in settings:
            fields.note_mistake(key, f"is missing; a grader of type {kind} needs it")
    if kind in JUDGED_TYPES and fields.has("temperature"):
        remedy = "judge by a target {provider: goent, model: …, method: api, temperature: …}"
        fields.note_mistake("temperature", f"is a setting of who judges; {remedy}")
    check_settings(fields, kind)
    return settings


def _setting_value(kind: str, key: str, node: Node) -> object:
    if key in BOOLEAN_SETTINGS and isinstance(node, Scalar) and node.kind == "bool":
        return node.is_true
    return as_text(node) if key == "value" and kind in TEXT_GRADERS else plain_value(node)


def _read_aggregator(fields: SettingsFields, members: tuple[str, ...]) -> dict[str, object]:
    """How members of a composite become one; as a script or a judge it has settings of theirs."""
    kebab = fields.text("type", "weighted_average").replace("_", "-")
    kind = {"weighted-average": "weighted_average"}.get(kebab, GRADER_ALIASES.get(kebab, kebab))
    found: dict[str, object] = {"type": kind}
    match kind:
        case "weighted_average":
            keys = ("weights",)
            fields.section("weights", lambda weights: _check_weights(weights, members))
        case "threshold":
            keys = ("threshold",)
            limit = read_share(fields, "threshold")
            if limit is None and not fields.has("threshold"):
                told = "is missing; the share of members that must pass, 0 to 1"
                fields.note_mistake("threshold", told)
        case "code-grader":
            keys = ("cwd", "timeout_seconds")
            key = fields.one_of("command", "script", "path")
            if key is None:
                fields.note_mistake(
                    "command", "is missing; name the program that makes one of many"
                )
            else:
                found["command"] = _read_command(fields, key)
        case "llm-grader":
            keys = ("prompt", "target", "model")
        case _:
            keys = ()
            accept_all(fields)
            wanted = ", ".join(AGGREGATORS)
            fields.note_mistake("type", f"unknown type {kind!r}; one of {wanted}")
    return found | {key: plain_value(node) for key in keys if (node := fields.node(key))}


def _check_weights(fields: SettingsFields, members: tuple[str, ...]) -> None:
    """By the names of members, if these are known: another one would be a weight of nobody's."""
    for name in members or fields.keys:
        fields.amount(name, None)


def _read_command(fields: SettingsFields, key: str) -> list[str]:
    """A list is run as it is; a text is for the shell."""
    words = fields.texts(key)
    if not words and fields.shape(key) == "list":
        fields.note_mistake(key, "says nothing to run")
    return list(words) if fields.shape(key) == "list" else ["sh", "-c", *words]


def _read_required(fields: SettingsFields) -> bool | float:
    node = fields.node("required")
    if isinstance(node, Scalar) and node.kind == "bool":
        return node.is_true
    limit = read_share(fields, "required")
    return False if limit is None else limit


def _default_name(kind: str, value: object) -> str:
    if isinstance(value, list):
        values: list[object] = value  # pyright: ignore[reportUnknownVariableType] (from a file)
        return f"{kind}-{len(values)}"
    return kind if value is None else f"{kind}-{value}"
