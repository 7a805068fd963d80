"""What is one test? Its own words, and what its suite says for all."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from goent.config.fields import Fields, Mention, read_table
from goent.config.tree import Items, Node, Table
from goent.domain.types import Value
from goent.evals.files.checks import share
from goent.evals.files.conversations import read_conversation
from goent.evals.files.graders import LISTS, counts, implicit, read_graders, rubric
from goent.evals.files.messages import (
    read_expected,
    read_files,
    read_input,
    split_guidelines,
    with_files,
)
from goent.evals.files.texts import Source
from goent.evals.files.trees import heard, plain, told
from goent.evals.files.variables import with_variables
from goent.evals.files.workspaces import read_workspace, workspace_table
from goent.evals.graders.grading import mistakes
from goent.evals.suites import Case, Conversation, Form, GraderSpec, Said


class Shared(Value, frozen=True, kw_only=True):
    """What a suite says for each of its cases."""

    suite: str
    folder: Path
    form: Form
    input: tuple[Said, ...] = ()
    files: tuple[Path, ...] = ()
    graders: tuple[GraderSpec, ...] = ()
    targets: tuple[Mention, ...] = ()
    workspace: Table | None = None
    metadata: Mapping[str, object] = {}
    compat: bool = False


class Alias(Mention, frozen=True, kw_only=True):
    """Another name that a suite gives a target, unless the targets file has one of that name."""

    of: Mention


class Execution(Value, frozen=True, kw_only=True):
    """What a case, or a suite, says about being run."""

    targets: tuple[Mention, ...] = ()
    threshold: float | None = None
    skip_defaults: bool = False
    graders: Node | None = None


def read_case(table: Table, shared: Shared, source: Source) -> Case | None:
    """A case; its `{{variables}}` are filled in first."""
    filled = with_variables(table, source, strict=not shared.compat)
    before = source.problems.count
    case = read_table(filled, lambda fields: _case(fields, shared, source), source.problems)
    if case and not shared.compat and any(map(counts, case.every_grader)):
        try_graders(case, source, sound=source.problems.count == before)
    return case


def try_graders(case: Case, source: Source, *, sound: bool) -> None:
    """What no attempt could pass is told now. Whatever was refused already is not tried."""
    tried = tuple(_not_refused(case.every_grader, source))
    for mistake in mistakes(msgspec.structs.replace(case, graders=tried)):
        # That nobody could pass a case may be because of a grader that could not be read.
        if sound or mistake.place != case.place:
            source.problems.note(heard(mistake.place), mistake.text)


def _not_refused(graders: Sequence[GraderSpec], source: Source) -> Iterator[GraderSpec]:
    for grader in graders:
        if grader.place in source.refused:
            yield from _not_refused(grader.members, source)
        else:
            yield grader


def read_execution(fields: Fields) -> Execution:
    """What a case and a suite may both say; a suite takes the rest itself."""
    if fields.flag("cache", default=False):
        fields.mistake("cache", "is not supported; each attempt is made, or told again by `replay`")
    fields.text("cache_path", None)
    graders = fields.one_of(*LISTS)
    return Execution(
        targets=read_targets(fields),
        threshold=share(fields, "threshold"),
        skip_defaults=fields.flag("skip_defaults", default=False),
        graders=fields.node(graders) if graders else None,
    )


def read_targets(fields: Fields) -> tuple[Mention, ...]:
    """Names of targets: one, or several."""
    if fields.one_of("target", "targets") == "target":
        mention = fields.mention("target")
        return (mention,) if mention and mention.name else ()
    node = fields.node("targets")
    if not isinstance(node, Items) or not any(isinstance(item, Table) for item in node.items):
        return fields.mentions("targets")
    found: list[Mention] = []
    for item in node.items:
        if isinstance(item, Table):
            found += read_table(item, _matrix, fields.problems)
        else:
            alone = Table(place=node.place, entries={"targets": item})
            found += read_table(alone, lambda inner: inner.mentions("targets"), fields.problems)
    return tuple(found)


def _matrix(fields: Fields) -> tuple[Mention, ...]:
    if fields.has("hooks"):
        fields.mistake(
            "hooks", "is not supported of a target; write it to `workspace` as its hooks"
        )
    fields.needed("name", "name a target")
    name, other = fields.mention("name"), fields.mention("use_target")
    if name and other:
        return (Alias(name=name.name, place=name.place, of=other),)
    return (name,) if name else ()


def unsupported(fields: Fields, key: str) -> None:
    if fields.has(key):
        fields.mistake(key, "is not supported; take it away")


def _case(fields: Fields, shared: Shared, source: Source) -> Case | None:
    fields.has("vars")
    name = fields.needed("id", "give the case a name of its own")
    execution = fields.section("execution", read_execution)
    own_targets = read_targets(fields)
    targets = execution.targets or own_targets or shared.targets
    source.targets[shared.suite, told(fields.place)] = targets
    criteria = _criteria(fields, shared.form)
    files = read_files(fields, "input_files", source) or shared.files
    conversation, instructions = read_conversation(fields, source, files)
    said, guidelines = _input(fields, shared, source, None if conversation else files)
    graders = _graders(fields, execution, shared, source, criteria, conversation)
    expected = fields.one_of("expected_output", "expected_messages")
    if conversation and expected:
        fields.mistake(expected, "a conversation has none of its own; write it to the turn")
    workspace = workspace_table(fields.node("workspace"), source)
    needs = fields.mentions("depends_on")
    metadata = read_metadata(fields)
    case = Case(
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
        place=told(fields.place),
    )
    source.needs[case.place] = needs
    unsupported(fields, "preprocessors")
    fields.text("conversation_id", "")  # AgentV's own: it groups its reports by it
    return case if name else None


def _criteria(fields: Fields, form: Form) -> str:
    key = fields.one_of("criteria", "expected_outcome", "outcome")
    if key is None and form == "seed":
        fields.mistake("expected_outcome", "is missing; say what good looks like")
    return fields.text(key, "") if key else ""


def _input(
    fields: Fields, shared: Shared, source: Source, files: tuple[Path, ...] | None
) -> tuple[tuple[Said, ...], tuple[Path, ...]]:
    """`files` go along; None in a conversation, where it is what comes before, and may be nothing."""
    key = fields.one_of("input", "input_messages")
    if key is None and files is not None:
        wanted = "input_messages" if shared.form == "seed" else "input"
        fields.mistake(wanted, "is missing; say what the agent is asked")
    own = read_input(fields.node(key) if key else None, source)
    if key and own and own[-1].role != "user" and files is not None:
        fields.mistake(key, "ends with no message of the user: nothing is asked")
    said = (*shared.input, *with_files(own, files or ()))
    return split_guidelines(said, source.guidelines(fields.place.file))


def _graders(
    fields: Fields,
    execution: Execution,
    shared: Shared,
    source: Source,
    criteria: str,
    conversation: Conversation | None,
) -> tuple[GraderSpec, ...]:
    """Its own come first, then those of the suite, unless it wants none of them."""
    of_turns = [one for turn in conversation.turns for one in turn.graders] if conversation else []
    key = fields.one_of(*LISTS)
    graders: tuple[GraderSpec, ...] = ()
    rubrics = fields.node("rubrics")
    if rubrics:
        graders = (rubric(rubrics, source),)
    graders += read_graders(fields.node(key) if key else None, source)
    graders += read_graders(execution.graders, source)
    stated = bool(key or execution.graders or rubrics)
    if not execution.skip_defaults:
        graders += shared.graders
    if not graders and criteria and not stated and not of_turns:
        return (implicit(fields.place),)
    if not any(counts(grader) for grader in (*graders, *of_turns)) and not shared.compat:
        remedy = "write assertions with a weight above 0, or criteria for a judge"
        fields.mistake(key or "assertions", f"no grader of this case has a say; {remedy}")
    return graders


def read_metadata(fields: Fields) -> dict[str, object]:
    """Of a case or a suite; `tags` beside it are those in it."""
    metadata: dict[str, object] = {}
    node = fields.node("metadata")
    if isinstance(node, Table):
        metadata = {key: plain(part) for key, part in node.entries.items()}
    elif node is not None:
        fields.mistake("metadata", "expected a table")
    if fields.has("tags"):
        metadata["tags"] = list(fields.texts("tags"))
    return metadata


def _tags(metadata: Mapping[str, object]) -> tuple[str, ...]:
    """One, or several; what else somebody calls so is for graders."""
    tags = metadata.get("tags")
    several: list[object] = tags if isinstance(tags, list) else [tags]  # pyright: ignore[reportUnknownVariableType] (from a file)
    return tuple(tag for tag in several if isinstance(tag, str))
