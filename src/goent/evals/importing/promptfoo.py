"""How does a configuration of promptfoo become a suite? Every prompt with every test is a case."""

from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Final

from goent.domain.errors import ConfigError
from goent.evals.importing.asserting import DECISIVE, Asserting, too_clever
from goent.evals.importing.documents import (
    Imported,
    Move,
    Table,
    as_yaml,
    first,
    is_list,
    is_table,
    items,
    read,
    read_lines,
    read_text,
    slug,
    table,
)
from goent.evals.importing.providing import providers

_KNOWN: Final = frozenset(
    {
        "description",
        "prompts",
        "providers",
        "targets",
        "tests",
        "defaultTest",
        "evaluateOptions",
        "$schema",
    }
)
_OF_TESTS: Final = frozenset({"description", "vars", "assert", "threshold", "metadata"})
_OF_OPTIONS: Final = frozenset({"repeat", "maxConcurrency"})
_WHY: Final[Mapping[str, str]] = {
    "scenarios": "scenarios; write each of them out as tests",
    "assertScoringFunction": "assertScoringFunction, which is a program",
}
MOST: Final = 100_000  # cases


def from_promptfoo(path: Path, out: Path) -> Imported:
    """A suite `NAME.eval.yaml` and `.goent/targets.yaml`. Raises `ConfigError`."""
    raw = table(read(path))
    if "prompts" not in raw:
        raise ConfigError(f"{path}: has no prompts: is it a promptfooconfig.yaml?")
    config = _Config(path)
    suite = config.suite(raw)
    here = Move(path.parent, out)
    targets, notes, lost = providers(items(first(raw, "providers", "targets")), path.name, here)
    if targets:
        names = [target["name"] for target in targets]
        execution = table(suite.get("execution"))
        suite["execution"] = {"targets": names} | execution
    files = {f"{config.name}.eval.yaml": as_yaml(suite)}
    if targets:
        files[".goent/targets.yaml"] = as_yaml({"targets": targets})
    return Imported(
        files=files,
        notes=tuple(dict.fromkeys([*config.notes, *notes])),
        lost=tuple(dict.fromkeys([*config.lost, *lost])),
    )


class _Config:
    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.name = slug(path.stem.removeprefix("promptfooconfig").strip("-._")) or "promptfoo"
        self._path = path

    def suite(self, raw: Table) -> Table:
        self._unknown(raw, _KNOWN, "")
        options = table(raw.get("evaluateOptions"))
        self._unknown(options, _OF_OPTIONS, "evaluateOptions.")
        execution: Table = {}
        if repeat := options.get("repeat"):
            execution["trials"] = {"count": repeat}
        if workers := options.get("maxConcurrency"):
            execution["workers"] = workers
        tests = list(self._cases(raw))
        if not tests:
            why = "".join(f"\n{line}" for line in dict.fromkeys(self.lost))
            raise ConfigError(f"{self._path}: none of its tests can be carried over{why}")
        return {
            "name": self.name,
            **({"description": raw["description"]} if raw.get("description") else {}),
            **({"execution": execution} if execution else {}),
            "tests": tests,
        }

    def _cases(self, raw: Table) -> Iterator[Table]:
        usual = table(raw.get("defaultTest"))
        self._unknown(usual, _OF_TESTS, "defaultTest.")
        prompts = [prompt for one in items(raw["prompts"]) if (prompt := self._prompt(one))]
        taken: dict[str, int] = {}
        count = 0
        for number, told in enumerate(self._tests(raw), start=1):
            test = table(told)
            where = f"test {number}"
            self._unknown(test, _OF_TESTS, f"{where}: ")
            variables = {**table(usual.get("vars")), **table(test.get("vars"))}
            graders, loose = self._graders(usual, test, where)
            if not graders:
                self._lose(f"{where}, the whole of it: none of its assertions is known")
                continue
            for prompt, values in product(prompts, self._each(variables, where)):
                count += 1
                if count > MOST:
                    raise ConfigError(f"{self._path}: would be more than {MOST} cases")
                name = slug(str(test.get("description") or "")) or f"test-{number}"
                taken[name] = taken.get(name, 0) + 1
                if taken[name] > 1:
                    name = f"{name}-{taken[name]}"
                    taken.setdefault(name, 1)
                threshold = first(test, "threshold") or first(usual, "threshold")
                metadata = {**table(usual.get("metadata")), **table(test.get("metadata"))}
                yield {
                    "id": name,
                    **({"vars": values} if values else {}),
                    "input": prompt,
                    **({"execution": {"threshold": threshold}} if loose else {}),
                    **({"metadata": metadata} if metadata else {}),
                    "assertions": graders,
                }

    def _tests(self, raw: Table) -> Iterator[object]:
        told = raw.get("tests")
        if told is None:
            if "scenarios" not in raw:
                yield {}
            return
        for one in items(told):
            if not isinstance(one, str):
                yield one
                continue
            path = self._path.parent / one.removeprefix("file://")
            if path.suffix == ".jsonl":
                yield from read_lines(path)
            elif path.suffix in (".yaml", ".yml", ".json"):
                yield from items(read(path))
            else:
                self._lose(f"tests from {one!r}: write them as YAML, JSON or JSONL")

    def _prompt(self, told: object) -> object:
        """A text; or messages, where a file holds such."""
        text = first(told, "raw", "content", "id") if is_table(told) else told
        if not isinstance(text, str):
            self._note(f"a prompt: {told!r}")
            return None
        if text.startswith("file://"):
            path = self._path.parent / text.removeprefix("file://")
            if path.suffix in (".py", ".js", ".ts", ".mjs", ".cjs"):
                self._note(f"the prompt {text!r}: it is a program")
                return None
            said = read(path) if path.suffix in (".json", ".yaml", ".yml") else None
            if is_list(said) and all(is_table(one) and "role" in one for one in said):
                self._lose_clever(said)
                return said
            text = read_text(path)
        self._lose_clever(text)
        return text

    def _lose_clever(self, prompt: object) -> None:
        for text in too_clever(prompt):
            self._lose(f"what is more than {{{{name}}}} in the prompt {text!r}")

    def _each(self, variables: Mapping[str, object], where: str) -> Iterator[Table]:
        """A list of values stands for as many tests."""
        several = [
            [self._value(one, where) for one in items(value)] for value in variables.values()
        ]
        for values in product(*several):
            yield dict(zip(variables, values, strict=True))

    def _value(self, value: object, where: str) -> object:
        if not isinstance(value, str) or not value.startswith("file://"):
            if isinstance(value, str) and "{{" in value:
                self._lose(f"{where}: what is to be filled in in the variable {value[:60]!r}")
            return value
        path = self._path.parent / value.removeprefix("file://")
        if path.suffix in (".py", ".js", ".ts", ".mjs", ".cjs") or not path.is_file():
            self._note(f"{where}: the variable {value!r}")
            return value
        return read_text(path)

    def _graders(self, usual: Table, test: Table, where: str) -> tuple[list[Table], bool]:
        """All have to pass, unless a threshold is given."""
        loose = test.get("threshold") is not None or usual.get("threshold") is not None
        asserting = Asserting(
            self._path.name, where, required=not loose, notes=self.notes, lost=self.lost
        )
        told = [*items(test.get("assert")), *items(usual.get("assert"))]
        return asserting.graders(told), loose

    def _unknown(self, raw: Table, known: frozenset[str], above: str) -> None:
        for key in (key for key in raw if key not in known):
            if key == "options" and is_table(raw[key]):
                self._unknown(table(raw[key]), frozenset(), f"{above}options.")
            elif key in DECISIVE or key in _WHY:
                self._lose(f"{above}{_WHY.get(key, key)}")
            else:
                self._note(f"{above}{key}")

    def _note(self, what: str) -> None:
        self.notes.append(f"{self._path.name}: not carried over: {what}")

    def _lose(self, what: str) -> None:
        self.lost.append(f"{self._path.name}: not carried over: {what}")
