"""Reads one case: its own settings, with the suite's defaults and `{{variables}}` filled in."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from goent.config.settings_tree import (
    Items,
    Mention,
    Node,
    Scalar,
    SettingsFields,
    Table,
    read_table,
)
from goent.domain.input_mistakes import suggestion
from goent.domain.types import Value
from goent.evals.files.case_input_reader import (
    attach_files,
    read_conversation,
    read_expected,
    read_files,
    read_input,
    split_guidelines,
)
from goent.evals.files.file_source import (
    MOST_VALUES,
    FileSource,
    config_place,
    map_scalars,
    plain_value,
    suite_location,
    value_count,
)
from goent.evals.files.grader_reader import (
    GRADER_LISTS,
    can_score,
    implicit_grader,
    read_grader_list,
    read_graders,
    read_share,
    rubric_grader,
)
from goent.evals.files.workspace_reader import read_workspace, workspace_table
from goent.evals.graders.case_grader import grader_mistakes
from goent.evals.graders.grader_registry import GRADERS, grader_type
from goent.evals.suites import CaseConversation, EvalCase, GraderSpec, InputMessage, SuiteDialect

_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z_][\w.-]*)\s*\}\}")


def fill_variables(table: Table, source: FileSource, *, strict: bool) -> Table:
    """The case, with `{{variables}}` filled in. Unknown ones stay: judges' prompts have placeholders too.

    If `strict`, they are a mistake where nothing else would fill them in.
    """
    values = table.entries.get("vars")
    if values is None or (isinstance(values, Scalar) and values.kind == "null"):
        return table
    if not isinstance(values, Table):
        source.problems.note(values.place, "expected a table of variables")
        return table
    known = values.entries
    if strict:
        _check_placeholders(table, known, source)

    def filled(scalar: Scalar) -> Node:
        if scalar.kind != "text" or "{{" not in scalar.text:
            return scalar
        whole = _PLACEHOLDER.fullmatch(scalar.text)
        if whole and whole[1] in known:
            return known[whole[1]]
        text = _PLACEHOLDER.sub(
            lambda found: _variable_text(known.get(found[1]), found[0]), scalar.text
        )
        return Scalar(place=scalar.place, kind="text", text=text)

    shared: dict[int, Node] = {}
    entries = {
        key: part if key == "vars" else map_scalars(part, filled, shared)
        for key, part in table.entries.items()
    }
    changed = Table(place=table.place, entries=entries)
    if value_count(changed) > MOST_VALUES:
        source.problems.note(values.place, f"the case would hold more than {MOST_VALUES} values")
        return table
    return changed


def _variable_text(node: Node | None, otherwise: str) -> str:
    if node is None:
        return otherwise
    if isinstance(node, Scalar):
        return node.text
    return json.dumps(plain_value(node), ensure_ascii=False)


def _check_placeholders(table: Table, known: Mapping[str, Node], source: FileSource) -> None:
    for scalar in _filled_scalars(table):
        for found in _PLACEHOLDER.finditer(scalar.text):
            if found[1] not in known:
                remedy = suggestion(found[1], known)
                source.problems.note(scalar.place, f"{found[0]} is not in its vars; {remedy}")


def _filled_scalars(table: Table) -> Iterator[Scalar]:
    """The agent's input, and the values of text graders, in turns and composites as well."""
    for key, node in table.entries.items():
        if key in ("input", "input_messages") or (key == "value" and _is_text_grader(table)):
            yield from _scalars(node)
        elif key == "execution" and isinstance(node, Table):
            yield from _filled_scalars(node)
        elif key in ("turns", *GRADER_LISTS) and isinstance(node, Items):
            for item in node.items:
                if isinstance(item, Table):
                    yield from _filled_scalars(item)


def _is_text_grader(table: Table) -> bool:
    written = table.entries.get("type")
    kind = GRADERS.get(grader_type(written.text)) if isinstance(written, Scalar) else None
    return kind is not None and "value" in kind.setting_names


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
    else:
        for part in node.items if isinstance(node, Items) else node.entries.values():
            yield from _scalars(part)


class SuiteDefaults(Value, frozen=True, kw_only=True):
    """What a suite sets for all of its cases."""

    suite: str
    folder: Path
    form: SuiteDialect
    input: tuple[InputMessage, ...] = ()
    files: tuple[Path, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    targets: tuple[Mention, ...] = ()
    workspace: Table | None = None
    metadata: Mapping[str, object] = {}
    compat: bool = False


class TargetAlias(Mention, frozen=True, kw_only=True):
    """A suite's alias of a target, unless the targets file has one of that name."""

    of: Mention


class ExecutionSettings(Value, frozen=True, kw_only=True):
    """How a case or a suite is run."""

    targets: tuple[Mention, ...] = ()
    threshold: float | None = None
    skip_defaults: bool = False
    graders: Node | None = None


def read_case(table: Table, shared: SuiteDefaults, source: FileSource) -> EvalCase | None:
    filled = fill_variables(table, source, strict=not shared.compat)
    before = source.problems.mistake_count
    case = read_table(filled, lambda fields: _read_case(fields, shared, source), source.problems)
    if case and not shared.compat and any(map(can_score, case.all_graders)):
        check_graders(case, source, sound=source.problems.mistake_count == before)
    return case


def check_graders(case: EvalCase, source: FileSource, *, sound: bool) -> None:
    """Notes mistakes of graders that would fail every attempt, unless they were refused already."""
    tried = tuple(_accepted_graders(case.all_graders, source))
    for mistake in grader_mistakes(msgspec.structs.replace(case, graders=tried)):
        # A case without weights may have a grader that could not be read.
        if sound or mistake.place != case.place:
            source.problems.note(config_place(mistake.place), mistake.text)


def _accepted_graders(graders: Sequence[GraderSpec], source: FileSource) -> Iterator[GraderSpec]:
    for grader in graders:
        if grader.place in source.refused:
            yield from _accepted_graders(grader.members, source)
        else:
            yield grader


def read_execution(fields: SettingsFields) -> ExecutionSettings:
    """The settings that cases and suites share."""
    if fields.flag("cache", default=False):
        remedy = "to repeat recorded answers, use a target of provider `replay`"
        fields.note_mistake("cache", f"is not supported; {remedy}")
    fields.text("cache_path", None)
    graders = fields.one_of(*GRADER_LISTS)
    return ExecutionSettings(
        targets=read_target_names(fields),
        threshold=read_share(fields, "threshold"),
        skip_defaults=fields.flag("skip_defaults", default=False),
        graders=fields.node(graders) if graders else None,
    )


def read_target_names(fields: SettingsFields) -> tuple[Mention, ...]:
    if fields.one_of("target", "targets") == "target":
        mention = fields.mention("target")
        return (mention,) if mention and mention.name else ()
    node = fields.node("targets")
    if not isinstance(node, Items) or not any(isinstance(item, Table) for item in node.items):
        return fields.mentions("targets")
    found: list[Mention] = []
    for item in node.items:
        if isinstance(item, Table):
            found += read_table(item, _read_matrix_entry, fields.problems)
        else:
            alone = Table(place=node.place, entries={"targets": item})
            found += read_table(alone, lambda inner: inner.mentions("targets"), fields.problems)
    return tuple(found)


def _read_matrix_entry(fields: SettingsFields) -> tuple[Mention, ...]:
    if fields.has("hooks"):
        fields.note_mistake("hooks", "is not supported for a target; move them to `workspace`")
    fields.required_text("name", "name a target")
    name, other = fields.mention("name"), fields.mention("use_target")
    if name and other:
        return (TargetAlias(name=name.name, place=name.place, of=other),)
    return (name,) if name else ()


def reject_key(fields: SettingsFields, key: str) -> None:
    if fields.has(key):
        fields.note_mistake(key, "is not supported; remove it")


def _read_case(
    fields: SettingsFields, shared: SuiteDefaults, source: FileSource
) -> EvalCase | None:
    fields.has("vars")
    name = fields.required_text("id", "give the case a unique id")
    execution = fields.section("execution", read_execution)
    own_targets = read_target_names(fields)
    targets = execution.targets or own_targets or shared.targets
    source.targets[shared.suite, suite_location(fields.place)] = targets
    criteria = _read_criteria(fields, shared.form)
    files = read_files(fields, "input_files", source) or shared.files
    conversation, instructions = read_conversation(fields, source, files)
    said, guidelines = _read_case_input(fields, shared, source, None if conversation else files)
    graders = _case_graders(fields, execution, shared, source, criteria, conversation)
    expected = fields.one_of("expected_output", "expected_messages")
    if conversation and expected:
        fields.note_mistake(expected, "a conversation has none itself; move it to the turn")
    workspace = workspace_table(fields.node("workspace"), source)
    needs = fields.mentions("depends_on")
    metadata = read_metadata(fields)
    case = EvalCase(
        id=name,
        suite=shared.suite,
        form=shared.form,
        input=said,
        criteria=criteria,
        expected=read_expected(fields.node(expected) if expected else None, source),
        graders=graders,
        targets=tuple(dict.fromkeys(mention.name for mention in targets)),
        threshold=execution.threshold,
        workspace=read_workspace(shared.workspace, workspace, source),
        guidelines=tuple(dict.fromkeys((*guidelines, *instructions))),
        metadata={**shared.metadata, **metadata},
        tags=tuple(dict.fromkeys((*_tags(shared.metadata), *_tags(metadata)))),
        conversation=conversation,
        needs=tuple(dict.fromkeys(mention.name for mention in needs)),
        on_need_failure=fields.choice("on_dependency_failure", ("skip", "fail", "run"), "skip"),
        place=suite_location(fields.place),
    )
    source.needs[case.place] = needs
    reject_key(fields, "preprocessors")
    fields.text("conversation_id", "")  # AgentV's own: it groups its reports by it
    return case if name else None


def _read_criteria(fields: SettingsFields, form: SuiteDialect) -> str:
    key = fields.one_of("criteria", "expected_outcome", "outcome")
    if key is None and form == "seed":
        fields.note_mistake("expected_outcome", "is missing; describe a good answer")
    return fields.text(key, "") if key else ""


def _read_case_input(
    fields: SettingsFields,
    shared: SuiteDefaults,
    source: FileSource,
    files: tuple[Path, ...] | None,
) -> tuple[tuple[InputMessage, ...], tuple[Path, ...]]:
    """`files` are attached; None in a conversation, whose input comes before the turns and is optional."""
    key = fields.one_of("input", "input_messages")
    if key is None and files is not None:
        wanted = "input_messages" if shared.form == "seed" else "input"
        fields.note_mistake(wanted, "is missing; write what the agent is asked")
    own = read_input(fields.node(key) if key else None, source)
    if key and own and own[-1].role != "user" and files is not None:
        fields.note_mistake(key, "must end with a message of the user")
    said = (*shared.input, *attach_files(own, files or ()))
    return split_guidelines(said, source.guidelines(fields.place.file))


def _case_graders(
    fields: SettingsFields,
    execution: ExecutionSettings,
    shared: SuiteDefaults,
    source: FileSource,
    criteria: str,
    conversation: CaseConversation | None,
) -> tuple[GraderSpec, ...]:
    """Its own, then those of the suite unless `skip_defaults` is set."""
    of_turns = [one for turn in conversation.turns for one in turn.graders] if conversation else []
    key = fields.one_of(*GRADER_LISTS)
    rubrics = fields.node("rubrics")
    graders = (
        *((rubric_grader(rubrics, source),) if rubrics else ()),
        *read_grader_list(fields, source),
        *read_graders(execution.graders, source),
    )
    stated = bool(key or execution.graders or rubrics)
    if not execution.skip_defaults:
        graders += shared.graders
    if not graders and criteria and not stated and not of_turns:
        return (implicit_grader(fields.place),)
    if not any(can_score(grader) for grader in (*graders, *of_turns)) and not shared.compat:
        remedy = "write assertions with a weight above 0, or criteria for a judge"
        fields.note_mistake(key or "assertions", f"no grader of this case counts; {remedy}")
    return graders


def read_metadata(fields: SettingsFields) -> dict[str, object]:
    """The metadata of a case or suite; `tags` beside it are added."""
    metadata: dict[str, object] = {}
    node = fields.node("metadata")
    if isinstance(node, Table):
        metadata = {key: plain_value(part) for key, part in node.entries.items()}
    elif node is not None:
        fields.note_mistake("metadata", "expected a table")
    if fields.has("tags"):
        metadata["tags"] = list(fields.texts("tags"))
    return metadata


def _tags(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """One text, or a list; any other value is left to graders."""
    tags = metadata.get("tags")
    several: list[object] = tags if isinstance(tags, list) else [tags]  # pyright: ignore[reportUnknownVariableType] (from a file)
    return tuple(tag for tag in several if isinstance(tag, str))
