"""Reads a list of graders, with includes and shorthands expanded, and checks their settings.

Which settings a grader has, and of which types, is read from its declaration in the registry.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Final, Literal, Union, get_args, get_origin

import msgspec

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
)
from goent.domain.input_mistakes import suggestion
from goent.evals.files.file_source import FileSource, as_text, plain_value, suite_location
from goent.evals.graders.grader_kind import GraderKind, GraderSettings
from goent.evals.graders.grader_registry import GRADERS, grader_type
from goent.evals.graders.judge_prompt import RubricEntry
from goent.evals.suites import SETTINGS_FOLDERS, GraderSpec

DEEPEST_INCLUDE: Final = 3
GRADER_LISTS: Final = ("assertions", "evaluators", "assert")
AGGREGATORS: Final = ("weighted_average", "threshold", "code-grader", "llm-grader")


def read_graders(node: Node | None, source: FileSource, depth: int = 0) -> tuple[GraderSpec, ...]:
    """The graders of a list. All plain texts in it together are one rubric."""
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
            include = partial(_read_include, source=source, depth=depth)
            found += read_table(item, include, source.problems)
        else:
            before = source.problems.mistake_count
            read = partial(_read_grader, source=source, depth=depth)
            if grader := read_table(item, read, source.problems):
                found.append(grader)
                if source.problems.mistake_count > before:
                    source.refused.add(grader.place)
    return tuple(found)


def rubric_grader(criteria: Node, source: FileSource) -> GraderSpec:
    """A judge that checks a list of criteria."""
    if not isinstance(criteria, Items):
        source.problems.note(criteria.place, f"expected a list, not {describe_node(criteria)}")
    before = source.problems.mistake_count
    _check_items(criteria, str | RubricEntry, source.problems)
    if source.problems.mistake_count > before:
        source.refused.add(suite_location(criteria.place))
    settings = {"criteria": plain_value(criteria)}
    return GraderSpec(
        type="rubrics", name="rubrics", settings=settings, place=suite_location(criteria.place)
    )


def implicit_grader(place: SettingPlace) -> GraderSpec:
    """The judge of a case that has criteria and no graders."""
    return GraderSpec(type="llm-grader", name="llm-grader", place=suite_location(place))


def can_score(grader: GraderSpec) -> bool:
    """Whether it can ever count: it has a weight, and something to check."""
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
        leaves = f"{mention.name!r} leads out of the templates; name a file, x.yaml"
        fields.note_mistake("include", leaves)
        return ()
    if path is None:
        where = f".goent/templates/{mention.name}.yaml"
        fields.note_mistake("include", f"there is no template {mention.name!r}; write {where}")
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
    """Whether it is a path relative to the suite; otherwise it names a template."""
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
    type_ = grader_type(written)
    name = fields.text("name", "")
    required = _read_required(fields)
    weight = fields.amount("weight", 1.0)
    min_score = read_share(fields, "min_score")
    negate = fields.flag("negate", default=False)
    members: tuple[GraderSpec, ...] = ()
    before = source.problems.mistake_count
    if type_ == "composite":
        key = fields.one_of(*GRADER_LISTS)
        members = read_graders(fields.node(key) if key else None, source, depth)
        if not members:
            fields.note_mistake(key or "assertions", "a composite needs members; list its graders")
    kind = GRADERS.get(type_)
    if kind is None:
        accept_all(fields)
        if written:
            remedy = suggestion(type_, GRADERS)
            fields.note_mistake("type", f"{written!r} is not a grader, or not supported; {remedy}")
        return None
    known = members if source.problems.mistake_count == before else ()
    settings = _read_settings(fields, kind, tuple(member.name for member in known))
    return GraderSpec(
        type=type_,
        name=name or _default_name(type_, settings.get("value")),
        settings=settings,
        weight=weight,
        required=required,
        min_score=min_score,
        negate=negate,
        members=members,
        place=suite_location(fields.place),
    )


def _read_settings(
    fields: SettingsFields, kind: GraderKind, members: tuple[str, ...]
) -> dict[str, object]:
    settings: dict[str, object] = {}
    if "command" in kind.required and (key := fields.one_of("command", "script")):
        settings["command"] = _read_command(fields, key)
    for field in msgspec.structs.fields(kind.settings):
        key = field.name
        node = fields.node(key)
        if key == "aggregator" and node is not None:
            settings[key] = fields.section(key, partial(_read_aggregator, members=members))
        elif node is not None and key not in settings:
            settings[key] = _setting_value(field, node)
        elif key in kind.required and key not in settings:
            fields.note_mistake(key, f"is missing; a grader of type {kind.name} needs it")
    if kind.is_judged and fields.has("temperature"):
        remedy = "judge by a target {provider: goent, model: …, method: api, temperature: …}"
        fields.note_mistake("temperature", f"is a setting of the judge; {remedy}")
    _check_settings(fields, kind.settings)
    if kind.any_of and not settings:
        remedy = f"give one of {', '.join(kind.setting_names)}"
        fields.note_mistake("type", f"{kind.name} has nothing to check; {remedy}")
    return settings


def _setting_value(field: msgspec.structs.FieldInfo, node: Node) -> object:
    if field.type is bool and isinstance(node, Scalar) and node.kind == "bool":
        return node.is_true
    return as_text(node) if field.name == "value" else plain_value(node)


def _read_aggregator(fields: SettingsFields, members: tuple[str, ...]) -> dict[str, object]:
    """How members of a composite become one; a script or a judge has its usual settings."""
    kind = grader_type(fields.text("type", "weighted_average"))
    kind = "weighted_average" if kind == "weighted-average" else kind
    found: dict[str, object] = {"type": kind}
    match kind:
        case "weighted_average":
            keys = ("weights",)
            fields.section("weights", partial(_check_weights, members=members))
        case "threshold":
            keys = ("threshold",)
            limit = read_share(fields, "threshold")
            if limit is None and not fields.has("threshold"):
                missing = "is missing; the share of members that must pass, 0 to 1"
                fields.note_mistake("threshold", missing)
        case "code-grader":
            keys = ("cwd", "timeout_seconds")
            key = fields.one_of("command", "script", "path")
            if key is None:
                missing = "is missing; name the program that combines the members"
                fields.note_mistake("command", missing)
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
    """Accepts the names of members, or any if these are unknown."""
    for name in members or fields.keys:
        fields.amount(name, None)


def _read_command(fields: SettingsFields, key: str) -> list[str]:
    """A list is run directly; a text by the shell."""
    words = fields.texts(key)
    if not words and fields.shape(key) == "list":
        fields.note_mistake(key, "is empty; say what to run")
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


def read_share(fields: SettingsFields, key: str) -> float | None:
    """A number from 0 to 1."""
    value = fields.amount(key, None)
    if value is not None and value > 1:
        fields.note_mistake(key, f"must be from 0 to 1, not {value:g}")
        return None
    return value


def accept_all(fields: SettingsFields) -> None:
    """Accepts every key: others check this table."""
    for key in fields.keys:
        fields.has(key)


def read_grader_list(fields: SettingsFields, source: FileSource) -> tuple[GraderSpec, ...]:
    """The graders under whichever of `GRADER_LISTS` is written."""
    key = fields.one_of(*GRADER_LISTS)
    return read_graders(fields.node(key), source) if key else ()


def _check_settings(fields: SettingsFields, form: type[GraderSettings]) -> None:
    """Checks settings by their types, so that a mistake has its own line in the file.

    What types cannot say is checked by the grader.
    """
    for field in msgspec.structs.fields(form):
        _check_setting(fields, field.name, field.type)


def _check_setting(fields: SettingsFields, key: str, kind: object) -> None:
    match tuple(option for option in _options(kind) if option is not NoneType):
        case (only,) if only is int or only is float:
            fields.amount(key, None)
        case (only,) if get_origin(only) is Literal:
            fields.choice(key, get_args(only), None)
        case (only,) if get_origin(only) is tuple:
            _expect_shape(fields, key, "list")
        case (only,) if get_origin(only) is Mapping:
            _expect_shape(fields, key, "table")
        case _:
            fields.has(key)
    for option in _options(kind):
        if get_origin(option) is tuple:
            _check_items(fields.node(key), get_args(option)[0], fields.problems)


def _check_items(node: Node | None, kind: object, problems: Problems) -> None:
    """Checks the tables in a list, if its type has any."""
    forms = [
        one for one in _options(kind) if isinstance(one, type) and issubclass(one, GraderSettings)
    ]
    for item in node.items if forms and isinstance(node, Items) else ():
        if isinstance(item, Table):
            read_table(item, partial(_check_settings, form=forms[0]), problems)
        elif str not in _options(kind):
            problems.note(item.place, f"expected a table, not {describe_node(item)}")


def _options(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _expect_shape(fields: SettingsFields, key: str, shape: str) -> None:
    found = fields.shape(key)
    if found not in {None, shape}:
        fields.note_mistake(key, f"expected a {shape}, not a {found}")
