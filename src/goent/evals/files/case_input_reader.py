"""Reads a case's input, expected output and conversation turns."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from msgspec.structs import replace

from goent.config.settings_tree import (
    Items,
    Node,
    Scalar,
    SettingPlace,
    SettingsFields,
    Table,
    describe_node,
    read_table,
)
from goent.evals.files.file_source import FileSource, Guidelines, plain_value, suite_location
from goent.evals.files.grader_reader import GRADER_LISTS, implicit_grader, read_grader_list
from goent.evals.suites import CaseConversation, CaseTurn, InputMessage
from goent.evals.traces import CallStatus, TracedCall, TracedMessage

ROLES: Final = ("system", "user", "assistant", "tool")
STATUSES: Final[tuple[CallStatus, ...]] = get_args(CallStatus)


def read_input(node: Node | None, source: FileSource) -> tuple[InputMessage, ...]:
    """A text of the user, or a list of messages."""
    if node is None:
        return ()
    if isinstance(node, Scalar):
        return (InputMessage(role="user", text=node.text),) if _has_text(node, source) else ()
    if not isinstance(node, Items):
        message = f"expected text, or a list of messages, not {describe_node(node)}"
        source.problems.note(node.place, message)
        return ()
    said: list[InputMessage] = []
    for item in node.items:
        if isinstance(item, Table):
            said.append(
                read_table(item, lambda fields: _read_message(fields, source), source.problems)
            )
        else:
            source.problems.note(item.place, "expected a message: {role: user, content: …}")
    return tuple(said)


def attach_files(said: Sequence[InputMessage], files: Sequence[Path]) -> tuple[InputMessage, ...]:
    """Attaches files to the last message of the user."""
    for index in reversed(range(len(said))):
        if files and said[index].role == "user":
            last = said[index]
            more = InputMessage(role=last.role, text=last.text, files=(*last.files, *files))
            return (*said[:index], more, *said[index + 1 :])
    return tuple(said)


def split_guidelines(
    said: Sequence[InputMessage], known: Guidelines
) -> tuple[tuple[InputMessage, ...], tuple[Path, ...]]:
    """The messages without guideline files, and these files."""
    kept: list[InputMessage] = []
    guidelines: dict[Path, None] = {}
    for one in said:
        guidelines |= dict.fromkeys(path for path in one.files if known.matches(path))
        files = tuple(path for path in one.files if not known.matches(path))
        kept.append(InputMessage(role=one.role, text=one.text, files=files))
    return tuple(kept), tuple(guidelines)


def find_file(name: str, place: SettingPlace, source: FileSource) -> Path | None:
    """Finds a file relative to the suite's folder, or to the top of its repository."""
    here = Path(place.file).parent.absolute()
    top = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    try:
        for folder in (here, top):
            path = folder / name.lstrip("/") if folder is top and top != here else folder / name
            if path.is_file():
                return path.resolve()
    except (OSError, ValueError):
        pass
    where = f"in {here}" if top == here else f"neither in {here} nor in {top}"
    source.problems.note(place, f"there is no file {name!r}, {where}")
    return None


def read_files(fields: SettingsFields, key: str, source: FileSource) -> tuple[Path, ...]:
    found = (find_file(mention.name, mention.place, source) for mention in fields.mentions(key))
    return tuple(path for path in found if path)


def read_expected(node: Node | None, source: FileSource) -> tuple[TracedMessage, ...]:
    """A text or another value is the assistant's expected answer; messages stay as they are."""
    if node is None:
        return ()
    if isinstance(node, Items) and node.items and all(map(_has_role, node.items)):
        return tuple(
            read_table(item, _read_expected_message, source.problems)
            for item in node.items
            if isinstance(item, Table)
        )
    if isinstance(node, Table) and _has_role(node) and "content" in node.entries:
        return (read_table(node, _read_expected_message, source.problems),)
    return (TracedMessage(role="assistant", content=plain_value(node)),)


def _has_role(node: Node) -> bool:
    return isinstance(node, Table) and "role" in node.entries


def _read_expected_message(fields: SettingsFields) -> TracedMessage:
    fields.text("name", None)
    return TracedMessage(
        role=fields.choice("role", ROLES, "assistant"),
        content=_content(fields.node("content")),
        tool_calls=fields.rows("tool_calls", _read_call),
    )


def _content(node: Node | None) -> object:
    """Joins blocks of text."""
    if isinstance(node, Items) and node.items and all(map(_is_text_block, node.items)):
        return "\n".join(
            str(plain_value(item.entries["value"]))
            for item in node.items
            if isinstance(item, Table)
        )
    return "" if node is None else plain_value(node)


def _is_text_block(node: Node) -> bool:
    if not isinstance(node, Table) or set(node.entries) != {"type", "value"}:
        return False
    kind = node.entries["type"]
    return isinstance(kind, Scalar) and kind.text == "text"


def _read_call(fields: SettingsFields) -> TracedCall:
    return TracedCall(
        tool=fields.required_text("tool", "name the tool"),
        id=fields.text("id", ""),
        input=plain_value(fields.node("input")),
        output=plain_value(fields.node("output")),
        status=fields.choice("status", STATUSES, "unknown"),
        start_time=fields.text("start_time", None),
        end_time=fields.text("end_time", None),
        duration_ms=fields.amount("duration_ms", None),
    )


def _read_message(fields: SettingsFields, source: FileSource) -> InputMessage:
    fields.text("name", None)
    if not fields.has("role"):
        fields.note_mistake("role", f"is missing; one of {', '.join(ROLES)}")
    role = fields.choice("role", ROLES, "user")
    node = fields.node("content")
    if node is None:
        fields.note_mistake("content", "is missing; write its text")
    elif isinstance(node, Items):
        return _join_blocks(fields.rows("content", lambda block: _read_block(block, source)), role)
    elif isinstance(node, Table):
        fields.note_mistake("content", "expected text, or a list of blocks, not a table")
    elif _has_text(node, source):
        return InputMessage(role=role, text=node.text)
    return InputMessage(role=role, text="")


def _read_block(fields: SettingsFields, source: FileSource) -> str | Path | None:
    kind = fields.choice("type", ("text", "file"), None)
    key = fields.one_of("value", "text", "path")
    node = fields.node(key) if key else None
    if not isinstance(node, Scalar):
        fields.note_mistake(key or "value", "expected the text, or the name of the file")
        return None
    if kind == "file":
        return find_file(node.text, node.place, source)
    if kind is None and not fields.has("type"):
        fields.note_mistake("type", "is missing; one of text, file")
    return node.text


def _join_blocks(blocks: Sequence[str | Path], role: str) -> InputMessage:
    texts = [block for block in blocks if isinstance(block, str)]
    files = tuple(block for block in blocks if isinstance(block, Path))
    return InputMessage(role=role, text="\n".join(texts), files=files)


def _has_text(node: Scalar, source: FileSource) -> bool:
    if node.text.strip():
        return True
    source.problems.note(node.place, "must not be empty")
    return False


_CONVERSATION_KEYS: Final = ("turns", "aggregation", "on_turn_failure", "window_size")


def read_conversation(
    fields: SettingsFields, source: FileSource, files: Sequence[Path]
) -> tuple[CaseConversation | None, tuple[Path, ...]]:
    """The conversation, if the case is one, and its guideline files; `files` go with the first turn."""
    if fields.choice("mode", ("conversation",), None) is None:
        for key in _CONVERSATION_KEYS:
            if fields.has(key) and not fields.has("mode"):
                fields.note_mistake(key, "belongs to a conversation; add `mode: conversation`")
        return None, ()
    turns = fields.rows("turns", lambda turn: _read_turn(turn, source))
    if not turns:
        fields.note_mistake("turns", "a conversation needs at least one turn: [{input: …}]")
    guidelines: dict[Path, None] = {}
    split: list[CaseTurn] = []
    for number, turn in enumerate(turns):
        said = turn.input if number else attach_files(turn.input, files)
        kept, instructions = split_guidelines(said, source.guidelines(turn.place.file))
        guidelines |= dict.fromkeys(instructions)
        split.append(replace(turn, input=kept))
    conversation = CaseConversation(
        turns=tuple(split),
        aggregation=fields.choice("aggregation", ("mean", "min", "max"), "mean"),
        on_failure=fields.choice("on_turn_failure", ("continue", "stop"), "continue"),
        window=fields.integer("window_size", None, least=1),
    )
    return conversation, tuple(guidelines)


def _read_turn(fields: SettingsFields, source: FileSource) -> CaseTurn:
    if not fields.has("input"):
        fields.note_mistake("input", "is missing; write what the agent is asked in this turn")
    said = read_input(fields.node("input"), source)
    if said and said[-1].role != "user":
        fields.note_mistake("input", "must end with a message of the user")
    expected = read_expected(fields.node("expected_output"), source)
    graders = read_grader_list(fields, source)
    if expected and not fields.one_of(*GRADER_LISTS):
        graders = (implicit_grader(fields.place),)
    return CaseTurn(
        input=said, expected=expected, graders=graders, place=suite_location(fields.place)
    )
