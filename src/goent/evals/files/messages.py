"""What is said to the agent, and what would be a good answer?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Node, Place, Scalar, Table, describe
from goent.evals.files.surroundings import Guidelines
from goent.evals.files.texts import Source
from goent.evals.files.trees import plain
from goent.evals.suites import Said
from goent.evals.traces import CallStatus, TracedCall, TracedMessage

ROLES: Final = ("system", "user", "assistant", "tool")
STATUSES: Final[tuple[CallStatus, ...]] = get_args(CallStatus)


def read_input(node: Node | None, source: Source) -> tuple[Said, ...]:
    """One text of the user, or messages."""
    if node is None:
        return ()
    if isinstance(node, Scalar):
        return (Said(role="user", text=node.text),) if _is_said(node, source) else ()
    if not isinstance(node, Items):
        message = f"expected text, or a list of messages, not {describe(node)}"
        source.problems.note(node.place, message)
        return ()
    said: list[Said] = []
    for item in node.items:
        if isinstance(item, Table):
            said.append(read_table(item, lambda fields: _said(fields, source), source.problems))
        else:
            source.problems.note(item.place, "expected a message: {role: user, content: …}")
    return tuple(said)


def with_files(said: Sequence[Said], files: Sequence[Path]) -> tuple[Said, ...]:
    """The files go along with what the user says last."""
    for index in reversed(range(len(said))):
        if files and said[index].role == "user":
            last = said[index]
            more = Said(role=last.role, text=last.text, files=(*last.files, *files))
            return (*said[:index], more, *said[index + 1 :])
    return tuple(said)


def split_guidelines(
    said: Sequence[Said], known: Guidelines
) -> tuple[tuple[Said, ...], tuple[Path, ...]]:
    """The messages without files that are instructions, and those."""
    kept: list[Said] = []
    guidelines: dict[Path, None] = {}
    for one in said:
        guidelines |= dict.fromkeys(path for path in one.files if known.fit(path))
        files = tuple(path for path in one.files if not known.fit(path))
        kept.append(Said(role=one.role, text=one.text, files=files))
    return tuple(kept), tuple(guidelines)


def find_file(name: str, place: Place, source: Source) -> Path | None:
    """A file as a suite names it: from the suite's folder, or from the top of its repository."""
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


def read_files(fields: Fields, key: str, source: Source) -> tuple[Path, ...]:
    found = (find_file(mention.name, mention.place, source) for mention in fields.mentions(key))
    return tuple(path for path in found if path)


def read_expected(node: Node | None, source: Source) -> tuple[TracedMessage, ...]:
    """A text or a value is what the assistant should say; a list of messages is itself."""
    if node is None:
        return ()
    if isinstance(node, Items) and node.items and all(map(_has_role, node.items)):
        return tuple(
            read_table(item, _expected, source.problems)
            for item in node.items
            if isinstance(item, Table)
        )
    if isinstance(node, Table) and _has_role(node) and "content" in node.entries:
        return (read_table(node, _expected, source.problems),)
    return (TracedMessage(role="assistant", content=plain(node)),)


def _has_role(node: Node) -> bool:
    return isinstance(node, Table) and "role" in node.entries


def _expected(fields: Fields) -> TracedMessage:
    fields.text("name", None)
    return TracedMessage(
        role=fields.choice("role", ROLES, "assistant"),
        content=_content(fields.node("content")),
        tool_calls=fields.rows("tool_calls", _call),
    )


def _content(node: Node | None) -> object:
    """Blocks of text are one text."""
    if isinstance(node, Items) and node.items and all(map(_is_text_block, node.items)):
        return "\n".join(
            str(plain(item.entries["value"])) for item in node.items if isinstance(item, Table)
        )
    return "" if node is None else plain(node)


def _is_text_block(node: Node) -> bool:
    if not isinstance(node, Table) or set(node.entries) != {"type", "value"}:
        return False
    kind = node.entries["type"]
    return isinstance(kind, Scalar) and kind.text == "text"


def _call(fields: Fields) -> TracedCall:
    return TracedCall(
        tool=fields.needed("tool", "name the tool"),
        id=fields.text("id", ""),
        input=plain(fields.node("input")),
        output=plain(fields.node("output")),
        status=fields.choice("status", STATUSES, "unknown"),
        start_time=fields.text("start_time", None),
        end_time=fields.text("end_time", None),
        duration_ms=fields.amount("duration_ms", None),
    )


def _said(fields: Fields, source: Source) -> Said:
    fields.text("name", None)
    if not fields.has("role"):
        fields.mistake("role", f"is missing; one of {', '.join(ROLES)}")
    role = fields.choice("role", ROLES, "user")
    node = fields.node("content")
    if node is None:
        fields.mistake("content", "is missing; say what the message says")
    elif isinstance(node, Items):
        return _blocks(fields.rows("content", lambda block: _block(block, source)), role)
    elif isinstance(node, Table):
        fields.mistake("content", "expected text, or a list of blocks, not a table")
    elif _is_said(node, source):
        return Said(role=role, text=node.text)
    return Said(role=role, text="")


def _block(fields: Fields, source: Source) -> str | Path | None:
    kind = fields.choice("type", ("text", "file"), None)
    key = fields.one_of("value", "text", "path")
    node = fields.node(key) if key else None
    if not isinstance(node, Scalar):
        fields.mistake(key or "value", "expected the text, or the name of the file")
        return None
    if kind == "file":
        return find_file(node.text, node.place, source)
    if kind is None and not fields.has("type"):
        fields.mistake("type", "is missing; one of text, file")
    return node.text


def _blocks(blocks: Sequence[str | Path], role: str) -> Said:
    texts = [block for block in blocks if isinstance(block, str)]
    files = tuple(block for block in blocks if isinstance(block, Path))
    return Said(role=role, text="\n".join(texts), files=files)


def _is_said(node: Scalar, source: Source) -> bool:
    if node.text.strip():
        return True
    source.problems.note(node.place, "must not be empty")
    return False
