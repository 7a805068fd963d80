"""What does a file of an evaluation hold? A tree, with the environment's values in it."""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from goent.config.fields import Mention, read_table
from goent.config.tree import Node, Place, Problems, Scalar, Table
from goent.config.yaml_files import parse_document, parse_yaml
from goent.evals.files.surroundings import Guidelines, upward, variables
from goent.evals.files.trees import MOST_VALUES, parse_json, replaced, weight
from goent.evals.suites import Place as Written
from goent.plain_files import NotPlain, read_plain_text

T = TypeVar("T")
LARGEST: Final = 64 * 1024 * 1024  # bytes of a file
_VARIABLE: Final = re.compile(r"\$\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def odd_byte(error: UnicodeDecodeError) -> str:
    """Where a file stops being text."""
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"byte 0x{error.object[error.start]:02x} on line {line}"


class Source:
    """Reads files for one loading: which environment holds, and where mistakes go.

    Where nothing is `running`, nobody asks whether what attempts need is there.
    """

    def __init__(
        self, environ: Mapping[str, str], problems: Problems, *, running: bool = True
    ) -> None:
        self.problems = problems
        self.running = running
        # Of cases, by suite and place: several suites may name one file of cases.
        self.targets: dict[tuple[str, Written], Sequence[Mention]] = {}
        self.files: dict[Path, None] = {}  # all that were read
        self.needs: dict[Written, tuple[Mention, ...]] = {}  # of cases, by where they are written
        self.refused: set[Written] = set()  # graders with which something was wrong already
        self.environ = environ
        self._found: dict[Hashable, object] = {}
        self._variables: dict[Path, Mapping[str, str]] = {}
        self._guidelines: dict[Path, Guidelines] = {}

    def once(self, what: Hashable, find: Callable[[], T]) -> T:
        """What was found out for one case is known for the others."""
        if what not in self._found:
            self._found[what] = find()
        return self._found[what]  # pyright: ignore[reportReturnType] (whoever asks names what he finds)

    def guidelines(self, file: str) -> Guidelines:
        """Which files are instructions where this one lies: as the nearest settings say."""
        folder = Path(file).parent
        if folder not in self._guidelines:
            self._guidelines[folder] = self._patterns(folder)
        return self._guidelines[folder]

    def text(self, path: Path, asked: Place | None = None) -> str | None:
        """A file's text; `asked` is where it was named."""
        self.files[path] = None
        try:
            return read_plain_text(path, LARGEST)
        except NotPlain as error:
            why = f"it {error.why}"
        except UnicodeDecodeError as error:
            why = f"it is no text in UTF-8 ({odd_byte(error)})"
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            if path.is_symlink():
                why = f"it is a link to {str(path.readlink())!r}: {why}"
        if asked:
            self.problems.note_unreadable(asked, f"{str(path)!r} cannot be read: {why}")
        else:
            self.problems.note_unreadable(Place(file=str(path)), f"cannot be read: {why}")
        return None

    def document(self, path: Path, asked: Place | None = None) -> Node | None:
        text = self.text(path, asked)
        if text is None:
            return None
        return self._finished(parse_document(text, Place(file=str(path)), self.problems))

    def table(self, path: Path, asked: Place | None = None) -> Table | None:
        """A file that holds settings; None, with a problem, if it does not."""
        text = self.text(path, asked)
        if text is None:
            return None
        before, self.problems.unreadable = self.problems.unreadable, False
        node = self._finished(parse_yaml(text, Place(file=str(path)), self.problems))
        failed = self.problems.unreadable
        self.problems.unreadable = before or failed
        return node if isinstance(node, Table) and not failed else None

    def lines(self, path: Path, asked: Place | None = None) -> Iterator[Table]:
        """The objects of a file with one in each line."""
        text = self.text(path, asked)
        if text is not None and not text.strip():
            self.problems.note(Place(file=str(path)), "has no case; write one object a line")
        for number, line in enumerate((text or "").split("\n"), start=1):
            if line.strip():
                place = Place(file=str(path), line=number)
                node = self._finished(parse_json(line, place, self.problems))
                if isinstance(node, Table):
                    yield node
                elif node is not None:
                    self.problems.note(place, 'expected a JSON object, such as {"id": …}')

    def _finished(self, node: Node | None) -> Node | None:
        if node is None:
            return None
        if weight(node) > MOST_VALUES:
            message = f"holds more than {MOST_VALUES} values, or is nested too deeply"
            self.problems.note_unreadable(node.place, message)
            return None
        return replaced(node, self._with_environment)

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
            self._variables[folder] = variables(folder)
        return self._variables[folder].get(name, "")

    def _patterns(self, folder: Path) -> Guidelines:
        for each in upward(folder):
            for hidden, section in ((".goent", "evals"), (".agentv", "")):
                path = each / hidden / "config.yaml"
                table = self.table(path) if path.is_file() else None
                inner = table.entries.get(section) if table and section else table
                if isinstance(inner, Table) and (node := inner.entries.get("guideline_patterns")):
                    only = Table(place=inner.place, entries={"guideline_patterns": node})
                    told = read_table(only, lambda f: f.texts("guideline_patterns"), self.problems)
                    return Guidelines(each, told)
        return Guidelines(folder.resolve())
