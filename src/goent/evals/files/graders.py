"""How is a case graded? Its list of graders, includes and shorthands written out."""

import re
from pathlib import Path, PurePath
from typing import Final

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Node, Place, Scalar, Table, describe, suggestion
from goent.evals.files.checks import check_criteria, check_settings, share, take_all
from goent.evals.files.kinds import AGGREGATORS, ALSO, FLAGS, KINDS, TEXTS
from goent.evals.files.texts import Source
from goent.evals.files.trees import as_text, plain, told
from goent.evals.graders.judging import JUDGED
from goent.evals.suites import FOLDERS, GraderSpec

DEEPEST_INCLUDE: Final = 3
LISTS: Final = ("assertions", "evaluators", "assert")


def read_graders(node: Node | None, source: Source, depth: int = 0) -> tuple[GraderSpec, ...]:
    """The graders of a list. Plain texts in it are, together, one rubric."""
    if node is None:
        return ()
    if not isinstance(node, Items):
        source.problems.note(node.place, f"expected a list of graders, not {describe(node)}")
        return ()
    found: list[GraderSpec] = []
    texts = [item for item in node.items if isinstance(item, Scalar)]
    for item in node.items:
        if isinstance(item, Scalar):
            if item is texts[0]:
                found.append(rubric(Items(place=item.place, items=tuple(texts)), source))
        elif isinstance(item, Items):
            source.problems.note(item.place, "expected a grader, such as {type: contains, …}")
        elif "include" in item.entries:
            found += read_table(
                item, lambda fields: _included(fields, source, depth), source.problems
            )
        else:
            before = source.problems.count
            grader = read_table(
                item, lambda fields: _grader(fields, source, depth), source.problems
            )
            if grader:
                found.append(grader)
            if grader and source.problems.count > before:
                source.refused.add(grader.place)
    return tuple(found)


def rubric(criteria: Node, source: Source) -> GraderSpec:
    """A judge that goes through a list of criteria."""
    if not isinstance(criteria, Items):
        source.problems.note(criteria.place, f"expected a list, not {describe(criteria)}")
    before = source.problems.count
    check_criteria(criteria, source.problems)
    if source.problems.count > before:
        source.refused.add(told(criteria.place))
    settings = {"criteria": plain(criteria)}
    return GraderSpec(type="rubrics", name="rubrics", settings=settings, place=told(criteria.place))


def implicit(place: Place) -> GraderSpec:
    """What judges a case that only says what good looks like."""
    return GraderSpec(type="llm-grader", name="llm-grader", place=told(place))


def counts(grader: GraderSpec) -> bool:
    """Whether it can ever have a say: a weight, and something to look at."""
    if grader.weight <= 0:
        return False
    if grader.type == "composite":
        return any(counts(member) for member in grader.members)
    if grader.type == "tool-trajectory" and grader.settings.get("mode") == "any_order":
        keys = ("minimums", "expected", "max", "forbidden", "followed_by")
        return any(grader.settings.get(key) for key in keys)
    return True


def _included(fields: Fields, source: Source, depth: int) -> tuple[GraderSpec, ...]:
    mention = fields.mention("include")
    fields.text("type", None)
    if mention is None:
        return ()
    if depth >= DEEPEST_INCLUDE:
        fields.mistake("include", f"includes are more than {DEEPEST_INCLUDE} levels deep")
        return ()
    path = _template(mention.name, Path(fields.place.file).parent)
    if not _is_path(mention.name) and ".." in PurePath(mention.name).parts:
        fields.mistake(
            "include", f"{mention.name!r} leads out of the templates; name a file, x.yaml"
        )
        return ()
    if path is None:
        where = f".goent/templates/{mention.name}.yaml"
        fields.mistake("include", f"there is no template {mention.name!r}; write it to {where}")
        return ()
    before = source.problems.count
    node = source.document(path, mention.place)
    if node is None and source.problems.count == before:
        fields.mistake("include", f"the template {mention.name!r} is empty; list its graders")
    if not isinstance(node, Table):
        return read_graders(node, source, depth + 1)

    def read(inner: Fields) -> tuple[GraderSpec, ...]:
        inner.text("name", None)
        inner.text("description", None)
        key = inner.one_of(*LISTS)
        if key is None:
            inner.mistake("assertions", "is missing; list the graders of this template")
        return read_graders(inner.node(key) if key else None, source, depth + 1)

    return read_table(node, read, source.problems)


def _is_path(name: str) -> bool:
    """Of a file, seen from the suite; else it is the name of a template."""
    return name.endswith((".yaml", ".yml"))


def _template(name: str, start: Path) -> Path | None:
    if not re.fullmatch(r"[\w./ -]+", name):
        return None
    if _is_path(name):
        path = start / name
        return path if path.is_file() else None
    here = start.resolve()
    for folder in (here, *here.parents):
        for hidden in FOLDERS:
            for ending in (".yaml", ".yml"):
                path = folder / hidden / "templates" / f"{name}{ending}"
                if path.is_file():
                    return path
    return None


def _grader(fields: Fields, source: Source, depth: int) -> GraderSpec | None:
    written = fields.needed("type", "name a grader, such as contains")
    kebab = written.replace("_", "-")
    kind = ALSO.get(kebab, kebab)
    name = fields.text("name", "")
    required = _required(fields)
    weight = fields.amount("weight", 1.0)
    min_score = share(fields, "min_score")
    negate = fields.flag("negate", default=False)
    members: tuple[GraderSpec, ...] = ()
    before = source.problems.count
    if kind == "composite":
        key = fields.one_of(*LISTS)
        members = read_graders(fields.node(key) if key else None, source, depth)
        if not members:
            fields.mistake(key or "assertions", "a composite needs members; list its graders")
    if kind not in KINDS:
        take_all(fields)
        if written:
            remedy = suggestion(kebab, tuple(KINDS))
            fields.mistake("type", f"{written!r} is no grader, or not supported; {remedy}")
        return None
    known = members if source.problems.count == before else ()
    settings = _settings(fields, kind, tuple(member.name for member in known))
    return GraderSpec(
        type=kind,
        name=name or _name(kind, settings.get("value")),
        settings=settings,
        weight=weight,
        required=required,
        min_score=min_score,
        negate=negate,
        members=members,
        place=told(fields.place),
    )


def _settings(fields: Fields, kind: str, members: tuple[str, ...]) -> dict[str, object]:
    known = KINDS[kind]
    settings: dict[str, object] = {}
    if "command" in known.needed and (key := fields.one_of("command", "script")):
        settings["command"] = _command(fields, key)
    for key in (*known.needed, *known.known):
        node = fields.node(key)
        if key == "aggregator" and node is not None:
            settings[key] = fields.section(key, lambda inner: _aggregator(inner, members))
        elif node is not None and key not in settings:
            settings[key] = _setting(kind, key, node)
        elif key in known.needed and key not in settings:
            fields.mistake(key, f"is missing; a grader of type {kind} needs it")
    if kind in JUDGED and fields.has("temperature"):
        remedy = "judge by a target {provider: goent, model: …, method: api, temperature: …}"
        fields.mistake("temperature", f"is a setting of who judges; {remedy}")
    check_settings(fields, kind)
    return settings


def _setting(kind: str, key: str, node: Node) -> object:
    if key in FLAGS and isinstance(node, Scalar) and node.kind == "bool":
        return node.is_true
    return as_text(node) if key == "value" and kind in TEXTS else plain(node)


def _aggregator(fields: Fields, members: tuple[str, ...]) -> dict[str, object]:
    """How members of a composite become one; as a script or a judge it has settings of theirs."""
    kebab = fields.text("type", "weighted_average").replace("_", "-")
    kind = {"weighted-average": "weighted_average"}.get(kebab, ALSO.get(kebab, kebab))
    found: dict[str, object] = {"type": kind}
    match kind:
        case "weighted_average":
            keys = ("weights",)
            fields.section("weights", lambda weights: _weights(weights, members))
        case "threshold":
            keys = ("threshold",)
            limit = share(fields, "threshold")
            if limit is None and not fields.has("threshold"):
                told = "is missing; the share of members that must pass, 0 to 1"
                fields.mistake("threshold", told)
        case "code-grader":
            keys = ("cwd", "timeout_seconds")
            key = fields.one_of("command", "script", "path")
            if key is None:
                fields.mistake("command", "is missing; name the program that makes one of many")
            else:
                found["command"] = _command(fields, key)
        case "llm-grader":
            keys = ("prompt", "target", "model")
        case _:
            keys = ()
            take_all(fields)
            wanted = ", ".join(AGGREGATORS)
            fields.mistake("type", f"unknown type {kind!r}; one of {wanted}")
    return found | {key: plain(node) for key in keys if (node := fields.node(key))}


def _weights(fields: Fields, members: tuple[str, ...]) -> None:
    """By the names of members, if these are known: another one would be a weight of nobody's."""
    for name in members or fields.keys:
        fields.amount(name, None)


def _command(fields: Fields, key: str) -> list[str]:
    """A list is run as it is; a text is for the shell."""
    words = fields.texts(key)
    if not words and fields.shape(key) == "list":
        fields.mistake(key, "says nothing to run")
    return list(words) if fields.shape(key) == "list" else ["sh", "-c", *words]


def _required(fields: Fields) -> bool | float:
    node = fields.node("required")
    if isinstance(node, Scalar) and node.kind == "bool":
        return node.is_true
    limit = share(fields, "required")
    return False if limit is None else limit


def _name(kind: str, value: object) -> str:
    if isinstance(value, list):
        values: list[object] = value  # pyright: ignore[reportUnknownVariableType] (from a file)
        return f"{kind}-{len(values)}"
    return kind if value is None else f"{kind}-{value}"
