"""Reads evaluation files as trees, with the variables of the environment filled in."""

import json
import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from goent.config.file_syntax import parse_document, parse_yaml
from goent.config.settings_tree import (
    Items,
    Mention,
    Node,
    Problems,
    Scalar,
    SettingPlace,
    Table,
    read_table,
)
from goent.evals import suites
from goent.evals.suites import SuiteLocation
from goent.system.plain_files import NotPlainFile, read_plain_text
from goent.system.project_folders import UnsafeFolder, find_project

MOST_VALUES: Final = 1_000_000  # of a file, with each alias counted as what it stands for
MOST_LEVELS: Final = 60
LONGEST_INTEGER: Final = 40  # digits; what is longer becomes a float


def value_count(node: Node, known: dict[int, int] | None = None, level: int = 0) -> int:
    """How many values there are, were every alias written out; too many if they are too deep."""
    if isinstance(node, Scalar):
        return 1
    known = {} if known is None else known
    if id(node) not in known:
        if level > MOST_LEVELS:
            return MOST_VALUES + 1
        parts = node.items if isinstance(node, Items) else node.entries.values()
        known[id(node)] = 1 + sum(value_count(part, known, level + 1) for part in parts)
    return known[id(node)]


def map_scalars(
    node: Node, change: Callable[[Scalar], Node], known: dict[int, Node] | None = None
) -> Node:
    """The tree with every single value changed. What was shared stays shared."""
    known = {} if known is None else known
    if isinstance(node, Scalar):
        return change(node)
    if id(node) not in known:
        if isinstance(node, Items):
            items = tuple(map_scalars(item, change, known) for item in node.items)
            known[id(node)] = Items(place=node.place, items=items)
        else:
            entries = {
                name: map_scalars(part, change, known) for name, part in node.entries.items()
            }
            known[id(node)] = Table(place=node.place, entries=entries)
    return known[id(node)]


def plain_value(node: Node | None) -> object:
    """The value as JSON has it; `yes`, `no`, `on` and `off` are texts, as in YAML 1.2."""
    if node is None:
        return None
    if isinstance(node, Items):
        return [plain_value(item) for item in node.items]
    if isinstance(node, Table):
        return {name: plain_value(part) for name, part in node.entries.items()}
    if node.kind == "null":
        return None
    if node.kind == "bool" and node.text.lower() in ("true", "false"):
        return node.is_true
    return parse_number(node.text) if node.kind == "number" else node.text


def as_text(node: Node) -> object:
    """The value where a text is meant: `42` and `yes` as they were written, in a list as well."""
    if isinstance(node, Items):
        return [as_text(item) for item in node.items]
    return plain_value(node) if isinstance(node, Table) else node.text


def parse_number(text: str) -> float:
    digits = text.replace("_", "")
    if len(digits) <= LONGEST_INTEGER and digits.lstrip("+-").isdecimal():
        return int(digits)
    value = float(digits)
    return value if math.isfinite(value) else math.copysign(1e308, value)


def suite_location(place: SettingPlace) -> suites.SuiteLocation:
    """The place as a suite keeps it."""
    return suites.SuiteLocation(file=place.file, line=place.line or None, key=place.key)


def config_place(place: suites.SuiteLocation) -> SettingPlace:
    """And the other way round, for a mistake that is found later."""
    return SettingPlace(file=place.file, line=place.line or 0, key=place.key)


class _Digits(str):
    """Digits, as they were written."""

    __slots__ = ()


class _JsonObject:
    """The entries of a JSON object, duplicates included."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        self.pairs = pairs


def _reject_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON")


def parse_json(text: str, place: SettingPlace, problems: Problems) -> Node | None:
    """One line of JSON; None, with a problem, if it is none."""
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_JsonObject,
            parse_int=_Digits,
            parse_float=_Digits,
            parse_constant=_reject_constant,
        )
        return _node(value, place, problems)
    except RecursionError:
        problems.note(place, "nested too deeply")
    except UnicodeError:
        problems.note(place, "invalid JSON: half a surrogate pair")
    except ValueError as error:
        problems.note(place, f"invalid JSON: {getattr(error, 'msg', error)}")
    return None


def _node(value: object, place: SettingPlace, problems: Problems) -> Node:
    if isinstance(value, _JsonObject):
        entries: dict[str, Node] = {}
        for name, part in value.pairs:
            name.encode()
            if name in entries:
                problems.note(place.entry(name), "given twice; keep one")
            entries[name] = _node(part, place.entry(name), problems)
        return Table(place=place, entries=entries)
    if isinstance(value, list):
        parts: list[object] = value  # pyright: ignore[reportUnknownVariableType] (from JSON)
        items = (_node(part, place.entry(f"[{i}]"), problems) for i, part in enumerate(parts))
        return Items(place=place, items=tuple(items))
    if value is None:
        return Scalar(place=place, kind="null", text="null")
    if isinstance(value, bool):
        return Scalar(place=place, kind="bool", text="true" if value else "false")
    text = str(value)
    text.encode()
    kind = "number" if isinstance(value, _Digits) else "text"
    return Scalar(place=place, kind=kind, text=text)


GUIDELINE_PATTERNS: Final = ("**/*.instructions.md", "**/*.prompt.md", "**/SKILL.md")
LARGEST_DOTENV: Final = 1024 * 1024  # bytes of a `.env` file
_DOTENV_LINE: Final = re.compile(
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"
    r"(?:(?:\"((?:[^\"\\]|\\.)*+)\"|'([^']*+)')[ \t]*+(?:#.*)?$|([^#\n]*+))",
    re.MULTILINE,
)
_GLOB: Final = re.compile(r"\*\*/|\*\*|\*|\?")
_GLOBS: Final = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def folders_upward(folder: Path) -> Iterator[Path]:
    """The folder and those above it, up to its project's: what lies higher may be anybody's."""
    here = folder.resolve()
    try:
        top = find_project(here)
    except UnsafeFolder:  # a folder of somebody else says nothing about those above it
        top = here
    for each in (here, *here.parents):
        yield each
        if each == top:
            return


def dotenv_variables(folder: Path) -> Mapping[str, str]:
    """What `.env` files say there; the nearest wins. For the files of evaluations alone: no process gets them."""
    found: dict[str, str] = {}
    for each in folders_upward(folder):
        path = each / ".env"
        try:
            found = parse_dotenv(read_plain_text(path, LARGEST_DOTENV)) | found
        except (OSError, UnicodeError):
            continue
    return found


def parse_dotenv(text: str) -> dict[str, str]:
    """`NAME=value` a line; quotes are taken off, and comments left out."""
    return {
        line[1]: _unescape(line[2])
        if line[2] is not None
        else line[3] or (line[4] or "").rstrip(" \t")
        for line in _DOTENV_LINE.finditer(text.replace("\r\n", "\n"))
    }


def _unescape(text: str) -> str:
    return re.sub(
        r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text
    )


class Guidelines:
    """Files whose names fit are instructions. The patterns are seen from `top`."""

    def __init__(self, top: Path, patterns: tuple[str, ...] = GUIDELINE_PATTERNS) -> None:
        self._top = top
        self._patterns = tuple(map(_compile_glob, patterns))

    def matches(self, path: Path) -> bool:
        seen = path.relative_to(self._top) if path.is_relative_to(self._top) else path
        return any(pattern.fullmatch(seen.as_posix()) for pattern in self._patterns)


def _compile_glob(pattern: str) -> re.Pattern[str]:
    whole = pattern if "/" in pattern else f"**/{pattern}"
    words = iter(_GLOB.split(whole))
    globs = (_GLOBS[found[0]] for found in _GLOB.finditer(whole))
    regex = re.escape(next(words)) + "".join(
        glob + re.escape(word) for glob, word in zip(globs, words, strict=True)
    )
    return re.compile(regex, re.DOTALL)


T = TypeVar("T")
LARGEST_FILE: Final = 64 * 1024 * 1024  # bytes of a file
_VARIABLE: Final = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def invalid_byte(error: UnicodeDecodeError) -> str:
    """Where a file stops being text."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"byte 0x{error.object[error.start]:02x} on line {line}"


class FileSource:
    """Reads files for one loading: which environment holds, and where mistakes go.

    Where nothing is `running`, nobody asks whether what attempts need is there.
    """

    def __init__(
        self, environ: Mapping[str, str], problems: Problems, *, running: bool = True
    ) -> None:
        self.problems = problems
        self.for_run = running
        # Of cases, by suite and place: several suites may name one file of cases.
        self.targets: dict[tuple[str, SuiteLocation], Sequence[Mention]] = {}
        self.files: dict[Path, None] = {}  # all that were read
        self.needs: dict[
            SuiteLocation, tuple[Mention, ...]
        ] = {}  # of cases, by where they are written
        self.refused: set[SuiteLocation] = set()  # graders with which something was wrong already
        self.environ = environ
        self._found: dict[Hashable, object] = {}
        self._variables: dict[Path, Mapping[str, str]] = {}
        self._guidelines: dict[Path, Guidelines] = {}

    def cached(self, what: Hashable, find: Callable[[], T]) -> T:
        """What was found out for one case is known for the others."""
        if what not in self._found:
            self._found[what] = find()
        return self._found[what]  # pyright: ignore[reportReturnType] (whoever asks names what he finds)

    def guidelines(self, file: str) -> Guidelines:
        """Which files are instructions where this one lies: as the nearest settings say."""
        folder = Path(file).parent
        if folder not in self._guidelines:
            self._guidelines[folder] = self._find_guidelines(folder)
        return self._guidelines[folder]

    def text(self, path: Path, asked: SettingPlace | None = None) -> str | None:
        """A file's text; `asked` is where it was named."""
        self.files[path] = None
        try:
            return read_plain_text(path, LARGEST_FILE)
        except NotPlainFile as error:
            why = f"it {error.why}"
        except UnicodeDecodeError as error:
            why = f"it is no text in UTF-8 ({invalid_byte(error)})"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if path.is_symlink():
                why = f"it is a link to {str(path.readlink())!r}: {why}"
        if asked:
            self.problems.note_unreadable(asked, f"{str(path)!r} cannot be read: {why}")
        else:
            self.problems.note_unreadable(SettingPlace(file=str(path)), f"cannot be read: {why}")
        return None

    def document(self, path: Path, asked: SettingPlace | None = None) -> Node | None:
        text = self.text(path, asked)
        if text is None:
            return None
        return self._finish(parse_document(text, SettingPlace(file=str(path)), self.problems))

    def table(self, path: Path, asked: SettingPlace | None = None) -> Table | None:
        """A file that holds settings; None, with a problem, if it does not."""
        text = self.text(path, asked)
        if text is None:
            return None
        before, self.problems.unreadable = self.problems.unreadable, False
        node = self._finish(parse_yaml(text, SettingPlace(file=str(path)), self.problems))
        failed = self.problems.unreadable
        self.problems.unreadable = before or failed
        return node if isinstance(node, Table) and not failed else None

    def lines(self, path: Path, asked: SettingPlace | None = None) -> Iterator[Table]:
        """The objects of a file with one in each line."""
        text = self.text(path, asked)
        if text is not None and not text.strip():
            self.problems.note(SettingPlace(file=str(path)), "has no case; write one object a line")
        for number, line in enumerate((text or "").split("\n"), start=1):
            if line.strip():
                place = SettingPlace(file=str(path), line=number)
                node = self._finish(parse_json(line, place, self.problems))
                if isinstance(node, Table):
                    yield node
                elif node is not None:
                    self.problems.note(place, 'expected a JSON object, such as {"id": …}')

    def _finish(self, node: Node | None) -> Node | None:
        if node is None:
            return None
        if value_count(node) > MOST_VALUES:
            message = f"holds more than {MOST_VALUES} values, or is nested too deeply"
            self.problems.note_unreadable(node.place, message)
            return None
        return map_scalars(node, self._with_environment)

    def _with_environment(self, scalar: Scalar) -> Node:
        """A variable that is not set stands for nothing, as it always did."""
        if scalar.kind != "text" or "${{" not in scalar.text:
            return scalar
        folder = Path(scalar.place.file).parent
        text = _VARIABLE.sub(lambda found: self._variable(found[1], folder), scalar.text)
        return Scalar(place=scalar.place, kind="text", text=text)

    def _variable(self, name: str, folder: Path) -> str:
        if name in self.environ:
            return self.environ[name]
        if folder not in self._variables:
            self._variables[folder] = dotenv_variables(folder)
        return self._variables[folder].get(name, "")

    def _find_guidelines(self, folder: Path) -> Guidelines:
        for each in folders_upward(folder):
            for hidden, section in ((".goent", "evals"), (".agentv", "")):
                path = each / hidden / "config.yaml"
                table = self.table(path) if path.is_file() else None
                inner = table.entries.get(section) if table and section else table
                if isinstance(inner, Table) and (node := inner.entries.get("guideline_patterns")):
                    only = Table(place=inner.place, entries={"guideline_patterns": node})
                    told = read_table(only, lambda f: f.texts("guideline_patterns"), self.problems)
                    return Guidelines(each, told)
        return Guidelines(folder.resolve())
