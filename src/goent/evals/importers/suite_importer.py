"""Imports suites of promptfoo and AgentV, and data sets."""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Final, Literal

from goent.domain.errors import ConfigError
from goent.evals.importers.agentv_importer import (
    MODEL_PROVIDERS,
    api_target,
    from_agentv,
    suite_stem,
)
from goent.evals.importers.import_documents import (
    ForeignTable,
    ImportResult,
    PathMove,
    as_json_lines,
    as_list,
    as_table,
    as_yaml,
    first_value,
    is_list,
    is_table,
    read_json_lines,
    read_text,
    read_yaml,
    slug,
)

_SAME_TYPES: Final = (
    *("contains", "icontains", "starts-with", "regex"),
    *("contains-any", "contains-all", "icontains-any", "icontains-all"),
)
_LIST_TYPES: Final = ("contains-any", "contains-all", "icontains-any", "icontains-all")
_ASSERTION_KEYS: Final = frozenset({"type", "value", "threshold", "weight", "metric", "assert"})
DECISIVE_KEYS: Final = frozenset(  # without them something else is asked, or judged
    {
        *("transform", "postprocess", "contextTransform", "transformVars", "assertScoringFunction"),
        *("prefix", "suffix"),
    }
)
_TEMPLATE_LOGIC: Final = re.compile(r"\{%|\{\{[^}]*[|(.\[]")


def template_logic_in(value: object) -> Iterator[str]:
    """Texts with template logic beyond names, which is not supported."""
    if isinstance(value, str):
        if _TEMPLATE_LOGIC.search(value):
            yield value[:60]
    elif is_list(value):
        for part in value:
            yield from template_logic_in(part)
    elif is_table(value):
        for part in value.values():
            yield from template_logic_in(part)


class AssertionConverter:
    """Converts the assertions of one test; `required`: each must pass.

    `notes` get what is not carried over, `lost` what is no longer checked.
    """

    def __init__(
        self, file: str, where: str, *, required: bool, notes: list[str], lost: list[str]
    ) -> None:
        self._where = f"{file}, {where}: not carried over"
        self._required = required
        self._notes = notes
        self._lost = lost

    def graders(self, told: Sequence[object]) -> list[ForeignTable]:
        return [grader for one in told if (grader := self._grader(as_table(one)))]

    def _grader(self, told: ForeignTable) -> ForeignTable | None:
        kind = str(told.get("type", ""))
        negate = kind.startswith("not-")
        if clever := next(template_logic_in(told.get("value")), None):
            why = f"{clever!r} is more than {{{{name}}}}"
            self._lost.append(f"{self._where}: an assertion of the type {kind!r}: {why}")
            return None
        found = self._convert(kind.removeprefix("not-"), told)
        if found is None:
            self._lost.append(f"{self._where}: an assertion of the type {kind!r}")
            return None
        for key in (key for key in told if key not in _ASSERTION_KEYS):
            left = self._lost if key in DECISIVE_KEYS else self._notes
            left.append(f"{self._where}: {key} of an assertion of the type {kind!r}")
        if isinstance(told.get("metric"), str):
            found["name"] = told["metric"]
        weight = told.get("weight")
        if isinstance(weight, int | float) and weight != 1:
            found["weight"] = weight
        if negate:
            found["negate"] = True
        if self._required and weight != 0:
            found["required"] = True
        return found

    def _convert(self, kind: str, told: Mapping[str, object]) -> ForeignTable | None:
        value = told.get("value")
        match kind:
            case "equals":
                return {"type": kind, "value": value if _is_plain(value) else json.dumps(value)}
            case "is-json":
                if value is not None:
                    self._lost.append(f"{self._where}: the schema of is-json")
                return {"type": kind}
            case "cost":
                return _limit_grader({"type": kind}, "budget", told)
            case "latency":
                return _limit_grader({"type": kind}, "threshold", told)
            case "llm-rubric" | "model-graded-closedqa":
                return self._judge_grader(value, told)
            case "assert-set":
                return self._set(told)
            case _:
                return self._same_grader(kind, value) or _trajectory_grader(kind, value)

    def _same_grader(self, kind: str, value: object) -> ForeignTable | None:
        if kind not in _SAME_TYPES or value is None:
            return None
        if isinstance(value, str) and value.startswith("file://"):
            return None
        several = [one.strip() for one in value.split(",")] if isinstance(value, str) else value
        return {"type": kind, "value": as_list(several) if kind in _LIST_TYPES else value}

    def _judge_grader(self, value: object, told: Mapping[str, object]) -> ForeignTable | None:
        if not isinstance(value, str) or value.startswith("file://"):
            return None
        found: ForeignTable = {"type": "llm-grader", "criteria": value}
        limit = told.get("threshold")
        return found | ({"min_score": limit} if isinstance(limit, int | float) else {})

    def _set(self, told: Mapping[str, object]) -> ForeignTable | None:
        members = self.graders(as_list(told.get("assert")))
        if not members:
            return None
        limit = told.get("threshold")
        found: ForeignTable = {"type": "composite", "assertions": members}
        if isinstance(limit, int | float):
            for member in members:
                member.pop("required", None)
            found["aggregator"] = {"type": "threshold", "threshold": limit}
        return found


def _limit_grader(
    found: ForeignTable, name: str, told: Mapping[str, object]
) -> ForeignTable | None:
    limit = told.get("threshold")
    return found | {name: limit} if isinstance(limit, int | float) else None


def _trajectory_grader(kind: str, value: object) -> ForeignTable | None:
    """A grader of the tools used, and their order."""
    match kind:
        case "trajectory:tool-used" if isinstance(value, str):
            return {"type": "tool-trajectory", "mode": "any_order", "minimums": {value: 1}}
        case "trajectory:tool-used" if is_table(value) and isinstance(value.get("name"), str):
            least = {str(value["name"]): value.get("min", 1)}
            most = {"max": {str(value["name"]): value["max"]}} if "max" in value else {}
            return {"type": "tool-trajectory", "mode": "any_order", "minimums": least, **most}
        case "trajectory:tool-sequence":
            steps = as_list(as_table(value).get("steps")) or (
                as_list(value) if not is_table(value) else []
            )
            names = [one if isinstance(one, str) else as_table(one).get("name") for one in steps]
            if names and all(isinstance(name, str) for name in names):
                mode = as_table(value).get("mode")
                expected = [{"tool": name} for name in names]
                way = "exact" if mode == "exact" else "in_order"
                return {"type": "tool-trajectory", "mode": way, "expected": expected}
            return None
        case "trajectory:step-count" if is_table(value) and "max" in value:
            return {"type": "execution-metrics", "max_tool_calls": value["max"]}
        case _:
            return None


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


_PROVIDER_WORDS: Final = (
    "chat",
    "completion",
    "messages",
    "responses",
)  # between provider and model


_PROVIDER_KEYS: Final = ("id", "config", "label")


def convert_providers(
    told: Sequence[object], file: str, move: PathMove
) -> tuple[list[ForeignTable], list[str], list[str]]:
    """Targets, what was not carried over, and what of that changes answers."""
    found: list[ForeignTable] = []
    notes: list[str] = []
    lost: list[str] = []
    for one in told:
        name, config, label, more = _provider_entry(one)
        wanted = slug(label or name) or "target"
        taken = {target["name"] for target in found}
        numbers = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
        unique = next(each for each in (wanted, *numbers) if each not in taken)
        target, left = _provider_target(unique, name, dict(config), move)
        where = f"{file}, provider {name!r}: not carried over"
        if target is None:
            notes.append(
                f"{where}: the whole provider; write a target for it to .goent/targets.yaml"
            )
            continue
        found.append(target)
        notes += [f"{where}: config.{key}" for key in sorted(left)]
        for key in more:
            (lost if key in DECISIVE_KEYS else notes).append(f"{where}: {key}")
    return found, notes, lost


def _provider_entry(told: object) -> tuple[str, ForeignTable, str, list[str]]:
    """The id of a provider, in any of its forms, and the remaining keys."""
    if not is_table(told):
        return str(told), {}, "", []
    name, inner = next(iter(told.items()), ("", None))
    entry = told if "id" in told else as_table(inner)
    if "id" in told:
        name = str(told["id"])
    left = [key for key in entry if key not in _PROVIDER_KEYS]
    return name, as_table(entry.get("config")), str(entry.get("label") or ""), left


def _provider_target(
    name: str, provider: str, config: ForeignTable, move: PathMove
) -> tuple[ForeignTable | None, set[str]]:
    head, _, rest = provider.partition(":")
    match head:
        case "echo":
            command = "cat {PROMPT_FILE} > {OUTPUT_FILE}"
            return {"name": name, "provider": "cli", "command": command}, set(config)
        case "exec" if rest.strip():
            command = f"{rest.strip()} {{PROMPT}} > {{OUTPUT_FILE}}"
            folder = move(config.pop("basePath", None) or ".")
            return {"name": name, "provider": "cli", "command": command, "cwd": folder}, set(config)
        case "opencode":
            found: ForeignTable = {"name": name, "provider": "opencode"}
            provider_id, model = config.pop("provider_id", None), config.pop("model", None)
            if model:
                found["model"] = f"{provider_id}/{model}" if provider_id else model
            if isinstance(tools := config.get("tools"), dict):
                found["tools"] = tools
                del config["tools"]
            return found, set(config)
        case _ if head in MODEL_PROVIDERS and rest:
            words = rest.split(":")
            model = ":".join(words[1:] if words[0] in _PROVIDER_WORDS and words[1:] else words)
            return api_target(name, MODEL_PROVIDERS[head], model), set(config)
        case _:
            return None, set()


_CONFIG_KEYS: Final = frozenset(
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
_TEST_KEYS: Final = frozenset({"description", "vars", "assert", "threshold", "metadata"})
_OPTION_KEYS: Final = frozenset({"repeat", "maxConcurrency"})
_REMEDIES: Final[Mapping[str, str]] = {
    "scenarios": "scenarios; write each of them out as tests",
    "assertScoringFunction": "assertScoringFunction, which is a program",
}
MOST_CASES: Final = 100_000  # cases


def from_promptfoo(path: Path, out: Path) -> ImportResult:
    """A suite `NAME.eval.yaml` and `.goent/targets.yaml`. Raises `ConfigError`."""
    raw = as_table(read_yaml(path))
    if "prompts" not in raw:
        raise ConfigError(f"{path}: has no prompts; name a promptfooconfig.yaml")
    config = _PromptfooConfig(path)
    suite = config.suite(raw)
    here = PathMove(path.parent, out)
    targets, notes, lost = convert_providers(
        as_list(first_value(raw, "providers", "targets")), path.name, here
    )
    if targets:
        names = [target["name"] for target in targets]
        execution = as_table(suite.get("execution"))
        suite["execution"] = {"targets": names} | execution
    files = {f"{config.name}.eval.yaml": as_yaml(suite)}
    if targets:
        files[".goent/targets.yaml"] = as_yaml({"targets": targets})
    return ImportResult(
        files=files,
        notes=tuple(dict.fromkeys([*config.notes, *notes])),
        lost_checks=tuple(dict.fromkeys([*config.lost, *lost])),
    )


class _PromptfooConfig:
    def __init__(self, path: Path) -> None:
        self.notes: list[str] = []
        self.lost: list[str] = []
        self.name = slug(path.stem.removeprefix("promptfooconfig").strip("-._")) or "promptfoo"
        self._path = path

    def suite(self, raw: ForeignTable) -> ForeignTable:
        self._unknown(raw, _CONFIG_KEYS, "")
        options = as_table(raw.get("evaluateOptions"))
        self._unknown(options, _OPTION_KEYS, "evaluateOptions.")
        execution: ForeignTable = {}
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

    def _cases(self, raw: ForeignTable) -> Iterator[ForeignTable]:
        usual = as_table(raw.get("defaultTest"))
        self._unknown(usual, _TEST_KEYS, "defaultTest.")
        prompts = [prompt for one in as_list(raw["prompts"]) if (prompt := self._prompt(one))]
        taken: dict[str, int] = {}
        count = 0
        for number, told in enumerate(self._tests(raw), start=1):
            test = as_table(told)
            where = f"test {number}"
            self._unknown(test, _TEST_KEYS, f"{where}: ")
            variables = {**as_table(usual.get("vars")), **as_table(test.get("vars"))}
            graders, loose = self._graders(usual, test, where)
            if not graders:
                self._note_lost(f"{where}, the whole of it: none of its assertions is known")
                continue
            for prompt, values in product(prompts, self._each(variables, where)):
                count += 1
                if count > MOST_CASES:
                    raise ConfigError(f"{self._path}: would be more than {MOST_CASES} cases")
                name = slug(str(test.get("description") or "")) or f"test-{number}"
                taken[name] = taken.get(name, 0) + 1
                if taken[name] > 1:
                    name = f"{name}-{taken[name]}"
                    taken.setdefault(name, 1)
                threshold = first_value(test, "threshold") or first_value(usual, "threshold")
                metadata = {**as_table(usual.get("metadata")), **as_table(test.get("metadata"))}
                yield {
                    "id": name,
                    **({"vars": values} if values else {}),
                    "input": prompt,
                    **({"execution": {"threshold": threshold}} if loose else {}),
                    **({"metadata": metadata} if metadata else {}),
                    "assertions": graders,
                }

    def _tests(self, raw: ForeignTable) -> Iterator[object]:
        told = raw.get("tests")
        if told is None:
            if "scenarios" not in raw:
                yield {}
            return
        for one in as_list(told):
            if not isinstance(one, str):
                yield one
                continue
            path = self._path.parent / one.removeprefix("file://")
            if path.suffix == ".jsonl":
                yield from read_json_lines(path)
            elif path.suffix in (".yaml", ".yml", ".json"):
                yield from as_list(read_yaml(path))
            else:
                self._note_lost(f"tests from {one!r}: write them as YAML, JSON or JSONL")

    def _prompt(self, told: object) -> object:
        """A text, or messages from a file."""
        text = first_value(told, "raw", "content", "id") if is_table(told) else told
        if not isinstance(text, str):
            self._note(f"a prompt: {told!r}")
            return None
        if text.startswith("file://"):
            path = self._path.parent / text.removeprefix("file://")
            if path.suffix in (".py", ".js", ".ts", ".mjs", ".cjs"):
                self._note(f"the prompt {text!r}: it is a program")
                return None
            said = read_yaml(path) if path.suffix in (".json", ".yaml", ".yml") else None
            if is_list(said) and all(is_table(one) and "role" in one for one in said):
                self._lose_clever(said)
                return said
            text = read_text(path)
        self._lose_clever(text)
        return text

    def _lose_clever(self, prompt: object) -> None:
        for text in template_logic_in(prompt):
            self._note_lost(f"what is more than {{{{name}}}} in the prompt {text!r}")

    def _each(self, variables: Mapping[str, object], where: str) -> Iterator[ForeignTable]:
        """A list of values makes a test for each."""
        several = [
            [self._value(one, where) for one in as_list(value)] for value in variables.values()
        ]
        for values in product(*several):
            yield dict(zip(variables, values, strict=True))

    def _value(self, value: object, where: str) -> object:
        if not isinstance(value, str) or not value.startswith("file://"):
            if isinstance(value, str) and "{{" in value:
                self._note_lost(f"{where}: what is to be filled in in the variable {value[:60]!r}")
            return value
        path = self._path.parent / value.removeprefix("file://")
        if path.suffix in (".py", ".js", ".ts", ".mjs", ".cjs") or not path.is_file():
            self._note(f"{where}: the variable {value!r}")
            return value
        return read_text(path)

    def _graders(
        self, usual: ForeignTable, test: ForeignTable, where: str
    ) -> tuple[list[ForeignTable], bool]:
        """All must pass, unless there is a threshold."""
        loose = test.get("threshold") is not None or usual.get("threshold") is not None
        asserting = AssertionConverter(
            self._path.name, where, required=not loose, notes=self.notes, lost=self.lost
        )
        told = [*as_list(test.get("assert")), *as_list(usual.get("assert"))]
        return asserting.graders(told), loose

    def _unknown(self, raw: ForeignTable, known: frozenset[str], above: str) -> None:
        for key in (key for key in raw if key not in known):
            if key == "options" and is_table(raw[key]):
                self._unknown(as_table(raw[key]), frozenset(), f"{above}options.")
            elif key in DECISIVE_KEYS or key in _REMEDIES:
                self._note_lost(f"{above}{_REMEDIES.get(key, key)}")
            else:
                self._note(f"{above}{key}")

    def _note(self, what: str) -> None:
        self.notes.append(f"{self._path.name}: not carried over: {what}")

    def _note_lost(self, what: str) -> None:
        self.lost.append(f"{self._path.name}: not carried over: {what}")


def suite_from_data_set(path: Path, out: Path) -> ImportResult:
    """The cases of a data set, with the settings of its sidecar."""
    if path.suffix != ".jsonl":
        raise ConfigError(f"{path}: is not a data set; name a .jsonl file")
    sides = (path.with_name(f"{path.stem}{ending}") for ending in (".eval.yaml", ".eval.yml"))
    side = next((side for side in sides if side.is_file()), None)
    suite: ForeignTable = {
        **(as_table(read_yaml(side)) if side else {}),
        "tests": read_json_lines(path),
    }
    return _with_path_note(
        ImportResult(files={f"{suite_stem(path)}.eval.yaml": as_yaml(suite)}), path, out
    )


def data_set_from_suite(path: Path, out: Path) -> ImportResult:
    """A line per case, and a sidecar with the rest."""
    suite = as_table(read_yaml(path))
    cases = suite.pop("tests", None)
    if not is_list(cases):
        raise ConfigError(
            f"{path}: has no list of `tests`; `go-ent eval import agentv` reads others"
        )
    files = {f"{suite_stem(path)}.jsonl": as_json_lines(cases)}
    if suite:
        files[f"{suite_stem(path)}.eval.yaml"] = as_yaml(suite)
    return _with_path_note(ImportResult(files=files), path, out)


def _with_path_note(told: ImportResult, path: Path, out: Path) -> ImportResult:
    if path.resolve().parent == out.resolve():
        return told
    note = f"{path.name}: paths in it are still relative to {str(path.parent)!r}"
    return ImportResult(files=told.files, notes=(note,))


ImportKind = Literal["agentv", "promptfoo", "yaml", "jsonl"]

_IMPORTERS: Final[Mapping[ImportKind, Callable[[Path, Path], ImportResult]]] = {
    "agentv": from_agentv,
    "promptfoo": from_promptfoo,
    "yaml": suite_from_data_set,
    "jsonl": data_set_from_suite,
}


def import_files(kind: ImportKind, paths: Sequence[Path], out: Path) -> ImportResult:
    """What these files become in `out`, without writing. Raises `ConfigError`."""
    files: dict[str, str] = {}
    notes: dict[str, None] = {}
    lost: dict[str, None] = {}
    for path in paths:
        one = _IMPORTERS[kind](path, out)
        for name, text in one.files.items():
            if files.setdefault(name, text) != text:
                raise ConfigError(
                    f"{path}: another of these files becomes {name!r} too; import it separately"
                )
        notes |= dict.fromkeys(one.notes)
        lost |= dict.fromkeys(one.lost_checks)
    return ImportResult(files=files, notes=tuple(notes), lost_checks=tuple(lost))


def write_import(told: ImportResult, out: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes all files, or none if one exists already. Raises `ConfigError`."""
    paths = {out / name: text for name, text in told.files.items()}
    there = [str(path) for path in paths if os.path.lexists(path)]
    if there and not force:
        raise ConfigError(
            f"{', '.join(there)}: already there; overwrite with --force, or name another folder by --out"
        )
    for path, text in paths.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_whole(path, text)
        except OSError as error:
            raise ConfigError(
                f"cannot write {str(path)!r}: {error.strerror}; name another folder by --out"
            ) from None
    return tuple(paths)


def _write_whole(path: Path, text: str) -> None:
    """Writes the file atomically."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
