"""How does a suite of AgentV, of either dialect, become one of ours?"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from goent.domain.errors import ConfigError
from goent.evals.files.kinds import ALSO, KINDS
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
    table,
)
from goent.evals.importing.targets import ours

LISTS: Final = ("assertions", "evaluators", "assert")
_TOLD: Final = (
    *("name", "description", "category", "version", "author", "tags", "license", "requires"),
    *("metadata",),
)
_OF_CASES: Final = (
    *("vars", "metadata", "tags", "conversation_id", "depends_on", "on_dependency_failure"),
    *("mode", "aggregation", "on_turn_failure", "window_size"),
)
_EXECUTION: Final = (
    *("workers", "skip_defaults", "trials", "budget_usd", "threshold", "fail_on_error"),
)
_USUAL: Final[Mapping[str, object]] = {"cache": False, "cache_path": None}  # what a run does anyway
_OF_GRADERS: Final = ("type", "name", "weight", "required", "min_score", "negate")
_WORKSPACE: Final = ("name", "template", "repository", "ref", "repos", "hooks", "isolation", "mode")


def from_agentv(path: Path, out: Path) -> Imported:
    """A suite, and the targets that hold where it lies; or a targets file alone."""
    if path.suffix == ".jsonl":
        raw: Table = {"tests": read_lines(path)}
    else:
        raw = table(read(path))
    notes: list[str] = []
    lost: list[str] = []
    files: dict[str, str] = {}
    if "tests" in raw or "evalcases" in raw:
        suite = _Suite(path.name, Move(path.parent, out), notes, lost)
        files[f"{stem(path)}.eval.yaml"] = as_yaml(suite.converted(raw))
        found = _targets_of(path)
    elif "targets" in raw:
        found = path
    else:
        raise ConfigError(f"{path}: holds neither tests nor evalcases nor targets of AgentV")
    if found:
        targets, more = ours(items(table(read(found)).get("targets")), found.name)
        files[".goent/targets.yaml"] = as_yaml({"targets": targets})
        notes += more
    return Imported(files=files, notes=tuple(dict.fromkeys(notes)), lost=tuple(dict.fromkeys(lost)))


def stem(path: Path) -> str:
    for ending in (".eval.yaml", ".eval.yml", ".yaml", ".yml", ".jsonl"):
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    return path.name


def _targets_of(path: Path) -> Path | None:
    here = path.resolve().parent
    return next(
        (
            found
            for folder in (here, *here.parents)
            for ending in (".yaml", ".yml")
            if (found := folder / ".agentv" / f"targets{ending}").is_file()
        ),
        None,
    )


class _Suite:
    """One suite on its way. `notes` get what is left behind, `lost` what no longer is checked."""

    def __init__(self, name: str, move: Move, notes: list[str], lost: list[str]) -> None:
        self._name = name
        self._move = move
        self._notes = notes
        self._lost = lost
        self._seed = False

    def converted(self, raw: Table) -> Table:
        self._seed = "evalcases" in raw
        suite: Table = {key: raw[key] for key in _TOLD if raw.get(key) is not None}
        if "name" not in suite and isinstance(raw.get("suite"), str):
            suite["name"] = raw["suite"]
        execution = self._execution(raw, "")
        graders = [*self._graders(first(raw, *LISTS), ""), *self._graders(_evaluators(raw), "")]
        suite |= _given(
            input=self._messages(raw.get("input")),
            input_files=[self._move(name) for name in items(raw.get("input_files"))],
            execution=execution,
            workspace=self._workspace(raw.get("workspace"), ""),
            assertions=graders,
        )
        known = {*_TOLD, *LISTS, "suite", "input", "input_files", "execution", "target", "targets"}
        self._unknown(raw, known | {"workspace", "tests", "evalcases", "$schema"}, "")
        cases = [self._case(table(case), bool(graders)) for case in self._cases(raw)]
        suite["tests"] = [case for case in cases if case]
        if self._seed:
            self._note("", "borderline verdicts (0.6 to 0.8)")
        return suite

    def _cases(self, raw: Table) -> Iterator[object]:
        told = first(raw, "evalcases", "tests")
        if not isinstance(told, str):
            yield from items(told)
            return
        path = self._move.origin / told
        if path.is_dir():
            for case in sorted(path.glob("*/case.yaml")):
                yield read(case)
        elif path.suffix == ".jsonl":
            yield from read_lines(path)
        else:
            inner = read(path)
            yield from items(inner.get("tests") if is_table(inner) else inner)

    def _case(self, raw: Table, shared: bool) -> Table | None:  # noqa: FBT001 (of our own)
        name = raw.get("id")
        said = self._messages(first(raw, "input", "input_messages"))
        criteria = first(raw, "criteria", "expected_outcome", "outcome")
        where = f"case {name!r}"
        if name is None or said is None or (self._seed and criteria is None):
            self._lose(where, "the whole case: it has no id, no input or no criteria")
            return None
        execution = self._execution(raw, where)
        told = first(raw, *LISTS)
        rubrics = raw.get("rubrics")
        graders: list[object] = [{"type": "rubrics", "criteria": rubrics}] if rubrics else []
        graders += [*self._graders(told, where), *self._graders(_evaluators(raw), where)]
        alone = not shared or bool(execution.get("skip_defaults"))
        turns = [self._turn(table(turn), where) for turn in items(raw.get("turns"))]
        if not graders and alone and not turns and (told is not None or criteria is None):
            self._lose(where, "the whole case: none of its graders is known")
            return None
        known = {*_OF_CASES, *LISTS, "id", "input", "input_messages", "input_files", "criteria"}
        known |= {"expected_outcome", "outcome", "expected_output", "expected_messages", "rubrics"}
        known |= {"turns"}
        self._unknown(raw, known | {"execution", "target", "targets", "workspace"}, where)
        return {
            "id": name,
            **{key: raw[key] for key in _OF_CASES if raw.get(key) is not None},
            **_given(
                criteria=criteria,
                input=said,
                input_files=[self._move(file) for file in items(raw.get("input_files"))],
                expected_output=first(raw, "expected_output", "expected_messages"),
                execution=execution,
                workspace=self._workspace(raw.get("workspace"), where),
                assertions=graders,
                turns=turns,
            ),
        }

    def _execution(self, raw: Table, where: str) -> Table:
        told = table(raw.get("execution"))
        usual = {key for key, value in _USUAL.items() if value in (None, told.get(key))}
        self._unknown(told, {*_EXECUTION, *LISTS, *usual, "target", "targets"}, where, "execution.")
        found: Table = {key: told[key] for key in _EXECUTION if told.get(key) is not None}
        target, several = (told.get(key) or raw.get(key) for key in ("target", "targets"))
        if target is not None:
            found["target"] = target
        elif several is not None:
            found["targets"] = [self._target(one, where) for one in items(several)]
        return found

    def _target(self, told: object, where: str) -> object:
        if not is_table(told):
            return told
        self._unknown(told, {"name", "use_target"}, where, "execution.targets.")
        if "use_target" not in told:
            return told.get("name")
        return {"name": told.get("name"), "use_target": told["use_target"]}

    def _turn(self, raw: Table, where: str) -> Table:
        self._unknown(raw, {"input", "expected_output", "assertions"}, where, "turns.")
        return _given(
            input=self._messages(raw.get("input")),
            expected_output=raw.get("expected_output"),
            assertions=self._graders(raw.get("assertions"), where),
        )

    def _graders(self, told: object, where: str) -> list[object]:
        return [one for each in items(told) if (one := self._grader(each, where)) is not None]

    def _grader(self, raw: object, where: str) -> object:
        if not is_table(raw):
            return raw
        if "include" in raw:
            return {"include": raw["include"]}
        kebab = str(raw.get("type", "")).replace("_", "-")
        kind = ALSO.get(kebab, kebab)
        if kind not in KINDS:
            self._lose(where, f"a grader of the type {kebab!r}")
            return None
        known = {*_OF_GRADERS, *KINDS[kind].needed, *KINDS[kind].known}
        known |= {"script"} if kind == "code-grader" else set()
        known |= {*LISTS} if kind == "composite" else set()
        self._unknown(raw, known, where, f"{kind}: ")
        found: Table = {key: value for key, value in raw.items() if key in known} | {"type": kind}
        if kind == "composite":
            members = self._graders(first(raw, *LISTS), where)
            found = {key: value for key, value in found.items() if key not in LISTS}
            return {**found, "assertions": members} if members else None
        if "cwd" in found:
            found["cwd"] = self._move(found["cwd"])
        if kind == "tool-trajectory" and self._seed and "args_match" not in found:
            found["args_match"] = "superset"  # what `evalcases` mean by arguments
        return found

    def _messages(self, told: object) -> object:
        if not is_list(told):
            return told
        return [self._message(table(message)) for message in told]

    def _message(self, message: Table) -> Table:
        if isinstance(message.get("content"), list):
            blocks = [table(block) for block in items(message["content"])]
            return {**message, "content": [self._block(block) for block in blocks]}
        return message

    def _block(self, block: Table) -> Table:
        if block.get("type") != "file":
            return block
        return {"type": "file", "value": self._move(first(block, "value", "path", "text"))}

    def _workspace(self, told: object, where: str) -> Table:
        if isinstance(told, str):
            told = read(self._move.origin / told)
        raw = table(told)
        found: Table = {key: raw[key] for key in _WORKSPACE if raw.get(key) is not None}
        for key, usual in (("isolation", "per_test"), ("mode", "temp")):
            if found.pop(key, usual) != usual:
                self._note(where, f"workspace.{key}: each attempt has a workspace of its own")
        self._unknown(raw, set(_WORKSPACE), where, "workspace.")
        for key in ("template", "repository"):
            if key in found:
                found[key] = self._address(found[key])
        if "repos" in found:
            repos = [table(repo) for repo in items(found["repos"])]
            found["repos"] = [{**repo, "repo": self._address(repo.get("repo"))} for repo in repos]
        hooks = {
            name: self._hook(hook) if is_table(hook) else hook
            for name, hook in table(found.get("hooks")).items()
        }
        return found | ({"hooks": hooks} if hooks else {})

    def _address(self, told: object) -> object:
        return told if ":" in str(told).partition("/")[0] else self._move(told)

    def _hook(self, hook: Table) -> Table:
        return hook | ({"cwd": self._move(hook["cwd"])} if "cwd" in hook else {})

    def _unknown(self, raw: Table, known: set[str], where: str, above: str = "") -> None:
        for key in raw.keys() - known:
            self._note(where, f"{above}{key}")

    def _note(self, where: str, what: str) -> None:
        self._notes.append(self._left(where, what))

    def _lose(self, where: str, what: str) -> None:
        self._lost.append(self._left(where, what))

    def _left(self, where: str, what: str) -> str:
        return f"{self._name}{', ' if where else ''}{where}: not carried over: {what}"


def _evaluators(raw: Table) -> object:
    return first(table(raw.get("execution")), *LISTS)


def _given(**entries: object) -> Table:
    return {key: value for key, value in entries.items() if value not in (None, [], {}, "")}
