"""Which tools, fields, commands and failures does this version have? Written into the docs.

Everything between `<!-- generated: NAME -->` and `<!-- end of NAME -->` in `docs/interfaces.md`
comes from the code. `python scripts/gen_docs.py` rewrites it; a test says when that is due.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

import anyio
from msgspec import Struct, convert, inspect
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from goent.cli.main import CommandStub, command_tree
from goent.composition.app import open_app
from goent.domain import errors
from goent.domain.errors import WorkerError
from goent.domain.events import AnyEvent
from goent.evals.graders.grader_registry import GRADERS
from goent.mcp.server import DESCRIPTIONS
from goent.operations.operation_table import Operation

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "interfaces.md"
PLAIN: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "boolean",
    inspect.DecimalType: "decimal",
    inspect.FloatType: "number",
    inspect.IntType: "integer",
    inspect.NoneType: "null",
    inspect.StrType: "string",
}


class _Described(Struct, rename={"needed": "x-required"}):
    description: str = ""
    needed: bool = False


def main() -> None:
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def rewritten(page: str) -> str:
    """The page with every generated part made anew; the rest of it is left alone."""
    with tempfile.TemporaryDirectory() as folder:
        operations = anyio.run(_operations, folder)
    parts: Mapping[str, Callable[[], Iterator[str]]] = {
        "tools": lambda: _tools(operations),
        "values": lambda: _values(operations),
        "events": _events,
        "commands": _commands,
        "failures": _failures,
        "graders": _graders,
    }
    for name, lines in parts.items():
        begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
        found = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not found.search(page):
            raise SystemExit(f"{PAGE.name} has no part {name!r}: add {begin!r} and {end!r}")
        text = "\n".join((begin, *lines(), end))
        page = found.sub(lambda _, text=text: text, page)
    return page


async def _operations(folder: str) -> Sequence[Operation]:
    """The table of a real go-ent, in an empty project with an empty home."""
    environ = {"HOME": folder, "PATH": os.environ.get("PATH", "")}
    async with open_app(Path(folder), environ) as running:
        return tuple(running.operations.table.values())


def _tools(operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        yield f"### `{operation.name}` → {_named(operation.reply)}"
        yield f"{DESCRIPTIONS[operation.name]}\n"
        yield from _inputs(operation.request, "input")
        for inner in (kind for f in _fields(operation.request) for kind in _structs(f.type)):
            yield from _inputs(inner, f"field of a {_named(inner)}")


def _inputs(kind: type[Struct], head: str) -> Iterator[str]:
    yield f"| {head} | type | default | meaning |"
    yield "|---|---|---|---|"
    for field in _fields(kind):
        told = _described(field)
        default = "needed" if field.required or told.needed else _default(field)
        yield f"| `{field.encode_name}` | {_type(field.type)} | {default} | {_cell(told.description)} |"
    yield ""


def _values(operations: Sequence[Operation]) -> Iterator[str]:
    """What comes back, each value once, in the order in which it is first met."""
    waiting = [operation.reply for operation in operations]
    done: set[type] = set()
    yield "| value | what it is | fields |"
    yield "|---|---|---|"
    while waiting:
        kind = waiting.pop(0)
        if kind in done:
            continue
        done.add(kind)
        fields = "<br>".join(f"`{f.encode_name}`: {_type(f.type)}" for f in _fields(kind))
        yield f"| {_named(kind)} | {_summary(kind)} | {fields} |"
        waiting += [inner for field in _fields(kind) for inner in _structs(field.type)]


def _graders() -> Iterator[str]:
    yield "| type | also | settings | score |"
    yield "|---|---|---|---|"
    for kind in GRADERS.values():
        also = ", ".join(f"`{alias}`" for alias in kind.aliases)
        settings = ", ".join(
            f"`{name}`{' (needed)' if name in kind.required else ''}" for name in kind.setting_names
        )
        yield f"| `{kind.name}` | {also} | {settings} | {kind.score} |"


def _events() -> Iterator[str]:
    yield "| event | fields |"
    yield "|---|---|"
    for kind in get_args(AnyEvent):
        fields = ", ".join(f"`{field.encode_name}`" for field in _fields(kind))
        yield f"| `{kind.__name__}` | {fields} |"


def _commands() -> Iterator[str]:
    yield "| command | what it does | options |"
    yield "|---|---|---|"
    for name, command in _flat(command_tree()):
        arguments = [p for p in command.params if isinstance(p, TyperArgument)]
        named = " ".join([f"go-ent {name}", *(p.metavar or p.name or "" for p in arguments)])
        options = [
            _option(p) for p in command.params if isinstance(p, TyperOption) and not p.hidden
        ]
        about = (command.help or "").splitlines()[0]
        yield f"| {_code(named)} | {_cell(about)} | {' '.join(options)} |"


def _flat(group: TyperGroup, prefix: str = "") -> Iterator[tuple[str, TyperCommand | TyperGroup]]:
    for name, found in group.commands.items():
        command = found.load() if isinstance(found, CommandStub) else found
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                yield f"{prefix}{name}", command
            yield from _flat(command, f"{prefix}{name} ")
        elif isinstance(command, TyperCommand):
            yield f"{prefix}{name}", command


def _option(option: TyperOption) -> str:
    names = "/".join((*option.opts, *option.secondary_opts))
    return _code(names if option.is_flag else f"{names} {option.metavar or '…'}")


def _failures() -> Iterator[str]:
    yield "| kind | retryable | meaning |"
    yield "|---|---|---|"
    kinds: set[str] = set()
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, WorkerError) and kind.kind not in kinds:
            kinds.add(kind.kind)
            retryable = "yes" if kind.retryable else "no"
            yield f"| `{kind.kind}` | {retryable} | {_summary(kind)} |"


def _fields(kind: type) -> tuple[inspect.Field, ...]:
    told = inspect.type_info(kind)
    assert isinstance(told, inspect.StructType)
    return told.fields


def _type(told: inspect.Type) -> str:
    match told:
        case inspect.Metadata(type=inner):
            return _type(inner)
        case inspect.UnionType(types=types):
            return " or ".join(map(_type, types))
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.VarTupleType(item_type=item):
            return f"list of {_type(item)}"
        case inspect.TupleType(item_types=items):
            return f"[{', '.join(map(_type, items))}]"
        case inspect.DictType(key_type=key, value_type=value):
            return f"{{{_type(key)}: {_type(value)}}}"
        case inspect.StructType(cls=kind):
            return _named(kind)
        case _:
            return PLAIN[type(told)] + _bounds(told)


def _bounds(told: inspect.Type) -> str:
    if not isinstance(told, inspect.IntType | inspect.FloatType):
        return ""
    signs = {"gt": ">", "ge": "≥", "le": "≤"}
    limits = [f"{sign} {getattr(told, name):g}" for name, sign in signs.items() if _has(told, name)]
    return f" ({', '.join(limits)})" if limits else ""


def _has(told: inspect.Type, name: str) -> bool:
    return getattr(told, name) is not None


def _structs(told: inspect.Type) -> Iterator[type[Struct]]:
    match told:
        case inspect.Metadata(type=inner) | inspect.VarTupleType(item_type=inner):
            yield from _structs(inner)
        case inspect.UnionType(types=types):
            for inner in types:
                yield from _structs(inner)
        case inspect.StructType(cls=kind):
            yield kind
        case _:
            pass


def _default(field: inspect.Field) -> str:
    match field.default:
        case None | () | "":
            return ""
        case bool(flag):
            return f"`{str(flag).lower()}`"
        case float(number):
            return f"`{number:g}`"
        case other:
            return f"`{other}`"


def _described(field: inspect.Field) -> _Described:
    told = field.type.extra_json_schema if isinstance(field.type, inspect.Metadata) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (msgspec leaves it open)
    return convert(told or {}, _Described)


def _named(kind: type) -> str:
    return f"`{kind.__name__}`"


def _summary(kind: type) -> str:
    return _cell((kind.__doc__ or "").strip().splitlines()[0])


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
