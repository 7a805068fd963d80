"""Converts suites and targets of AgentV, in either dialect."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from goent.domain.errors import ConfigError
from goent.evals.files.grader_reader import GRADER_LISTS
from goent.evals.files.target_reader import COMMON_SETTINGS, snake_case
from goent.evals.graders.grader_registry import GRADERS, grader_type
from goent.evals.importers.import_documents import (
    ForeignTable,
    ImportResult,
    PathMove,
    as_list,
    as_table,
    as_yaml,
    first_value,
    is_list,
    is_table,
    read_json_lines,
    read_yaml,
)
from goent.evals.targets.target_registry import TARGET_KINDS

# Providers of models by AgentV's names, with go-ent's.
MODEL_PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openrouter": "openrouter",
    "gemini": "google",
    "google": "google",
    "vertex": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "groq": "groq",
    "xai": "xai",
    "cerebras": "cerebras",
}
_UNKNOWN_REMEDY: Final = (
    "add its ACP agent to `agents` in .goent/config.yaml and use provider goent, or write its command "
    "as provider cli"
)
_BATCHING_KEY: Final = "provider_batching"
_STATUSES_KEY: Final = "retry_status_codes"


def api_target(name: str, provider: str, model: object) -> ForeignTable:
    """A target that is a model without tools."""
    found: ForeignTable = {
        "name": name,
        "provider": "goent",
        "subprovider": provider,
        "method": "api",
    }
    return found | ({"model": model} if model else {})


def convert_targets(told: Sequence[object], file: str) -> tuple[list[ForeignTable], list[str]]:
    """The converted targets, and notes on what was not carried over."""
    notes: list[str] = []
    tables = ({snake_case(key): value for key, value in as_table(one).items()} for one in told)
    found = [target for one in tables if (target := _convert_target(one, file, notes))]
    names = {target["name"] for target in found}
    for target in found:
        _drop_unknown_targets(target, names, file, notes)
    return found, notes


def _convert_target(raw: ForeignTable, file: str, notes: list[str]) -> ForeignTable | None:
    name = str(raw.get("name", ""))
    where = f"{file}, target {name!r}: not carried over"
    if "judge_target" in raw:
        raw = raw | {"grader_target": raw.pop("judge_target")}
    kind = str(raw.get("provider", "")).replace("_", "-")
    known = TARGET_KINDS.get(kind)
    has_status = kind in MODEL_PROVIDERS or (known and not known.no_status)
    dropped = {_BATCHING_KEY} if has_status else {_BATCHING_KEY, _STATUSES_KEY}
    common: ForeignTable = {"name": name} | {
        key: value for key, value in raw.items() if key in COMMON_SETTINGS - dropped
    }
    if "use_target" in raw:
        return common
    if kind in MODEL_PROVIDERS:
        left = raw.keys() - COMMON_SETTINGS - {"model"}
        notes += [
            f"{where}: {key}; keys and addresses are in go-ent's own settings" for key in left
        ]
        return common | api_target(name, MODEL_PROVIDERS[kind], raw.get("model"))
    if known is None:
        notes.append(f"{where}: the whole target, of provider {kind!r}; {_UNKNOWN_REMEDY}")
        return None
    if kind == "cli" and "command_template" in raw:
        raw = raw | {"command": raw.pop("command_template")}
    settings: ForeignTable = {key: raw[key] for key in known.setting_names if key in raw}
    for path, words in known.mistakes(settings):
        key = path.partition(".")[0].partition("[")[0]
        if settings.pop(key, None) is not None:
            notes.append(f"{where}: {key}, which {words}")
    notes += [f"{where}: {key}" for key in raw.keys() - COMMON_SETTINGS - set(known.setting_names)]
    notes += [f"{where}: {key}" for key in sorted(dropped) if key in raw]
    return common | {"provider": kind} | settings


def _drop_unknown_targets(
    target: ForeignTable, names: set[object], file: str, notes: list[str]
) -> None:
    """Drops references to targets that were not converted."""
    where = f"{file}, target {target['name']!r}: not carried over"
    for key in ("grader_target", "fallback_targets", "use_target"):
        told = [name for name in as_list(target.get(key)) if "${{" not in str(name)]
        gone = [name for name in told if name not in names]
        if not gone:
            continue
        notes += [f"{where}: {key} {name!r}, which was not converted" for name in gone]
        kept = [name for name in as_list(target[key]) if name not in gone]
        if kept and key == "fallback_targets":
            target[key] = kept
        else:
            del target[key]


_SUITE_KEYS: Final = (
    *("name", "description", "category", "version", "author", "tags", "license", "requires"),
    *("metadata",),
)
_CASE_KEYS: Final = (
    *("vars", "metadata", "tags", "conversation_id", "depends_on", "on_dependency_failure"),
    *("mode", "aggregation", "on_turn_failure", "window_size"),
)
_EXECUTION_KEYS: Final = (
    *("workers", "skip_defaults", "trials", "budget_usd", "threshold", "fail_on_error"),
)
_DEFAULT_EXECUTION: Final[Mapping[str, object]] = {"cache": False, "cache_path": None}
_GRADER_KEYS: Final = ("type", "name", "weight", "required", "min_score", "negate")
_WORKSPACE_KEYS: Final = (
    *("name", "template", "repository", "ref", "repos", "hooks", "isolation", "mode"),
)


def from_agentv(path: Path, out: Path) -> ImportResult:
    """A suite with its targets, or a targets file alone."""
    if path.suffix == ".jsonl":
        raw: ForeignTable = {"tests": read_json_lines(path)}
    else:
        raw = as_table(read_yaml(path))
    notes: list[str] = []
    lost: list[str] = []
    files: dict[str, str] = {}
    if "tests" in raw or "evalcases" in raw:
        suite = _AgentVSuite(path.name, PathMove(path.parent, out), notes, lost)
        files[f"{suite_stem(path)}.eval.yaml"] = as_yaml(suite.convert(raw))
        found = _find_targets(path)
    elif "targets" in raw:
        found = path
    else:
        raise ConfigError(f"{path}: holds neither tests nor evalcases nor targets of AgentV")
    if found:
        targets, more = convert_targets(
            as_list(as_table(read_yaml(found)).get("targets")), found.name
        )
        files[".goent/targets.yaml"] = as_yaml({"targets": targets})
        notes += more
    return ImportResult(
        files=files, notes=tuple(dict.fromkeys(notes)), lost_checks=tuple(dict.fromkeys(lost))
    )


def suite_stem(path: Path) -> str:
    for ending in (".eval.yaml", ".eval.yml", ".yaml", ".yml", ".jsonl"):
        if path.name.endswith(ending):
            return path.name.removesuffix(ending)
    return path.name


def _find_targets(path: Path) -> Path | None:
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


class _AgentVSuite:
    """Converts one suite. `notes` get what is not carried over, `lost` what is no longer checked."""

    def __init__(self, name: str, move: PathMove, notes: list[str], lost: list[str]) -> None:
        self._name = name
        self._move = move
        self._notes = notes
        self._lost = lost
        self._seed = False

    def convert(self, raw: ForeignTable) -> ForeignTable:
        self._seed = "evalcases" in raw
        suite: ForeignTable = {key: raw[key] for key in _SUITE_KEYS if raw.get(key) is not None}
        if "name" not in suite and isinstance(raw.get("suite"), str):
            suite["name"] = raw["suite"]
        execution = self._execution(raw, "")
        graders = [
            *self._graders(first_value(raw, *GRADER_LISTS), ""),
            *self._graders(_execution_graders(raw), ""),
        ]
        suite |= _non_empty(
            input=self._messages(raw.get("input")),
            input_files=[self._move(name) for name in as_list(raw.get("input_files"))],
            execution=execution,
            workspace=self._workspace(raw.get("workspace"), ""),
            assertions=graders,
        )
        known = {"suite", "input", "input_files", "execution", "target", "targets"}
        known |= {"workspace", "tests", "evalcases", "$schema"}
        self._unknown(raw, {*_SUITE_KEYS, *GRADER_LISTS, *known}, "")
        cases = [self._case(as_table(case), bool(graders)) for case in self._cases(raw)]
        suite["tests"] = [case for case in cases if case]
        if self._seed:
            self._note("", "borderline verdicts (0.6 to 0.8)")
        return suite

    def _cases(self, raw: ForeignTable) -> Iterator[object]:
        told = first_value(raw, "evalcases", "tests")
        if not isinstance(told, str):
            yield from as_list(told)
            return
        path = self._move.origin / told
        if path.is_dir():
            for case in sorted(path.glob("*/case.yaml")):
                yield read_yaml(case)
        elif path.suffix == ".jsonl":
            yield from read_json_lines(path)
        else:
            inner = read_yaml(path)
            yield from as_list(inner.get("tests") if is_table(inner) else inner)

    def _case(self, raw: ForeignTable, shared: bool) -> ForeignTable | None:  # noqa: FBT001 (of our own)
        name = raw.get("id")
        said = self._messages(first_value(raw, "input", "input_messages"))
        criteria = first_value(raw, "criteria", "expected_outcome", "outcome")
        where = f"case {name!r}"
        if name is None or said is None or (self._seed and criteria is None):
            self._note_lost(where, "the whole case: it has no id, no input or no criteria")
            return None
        execution = self._execution(raw, where)
        told = first_value(raw, *GRADER_LISTS)
        rubrics = raw.get("rubrics")
        graders: list[object] = [{"type": "rubrics", "criteria": rubrics}] if rubrics else []
        graders += [*self._graders(told, where), *self._graders(_execution_graders(raw), where)]
        alone = not shared or bool(execution.get("skip_defaults"))
        turns = [self._turn(as_table(turn), where) for turn in as_list(raw.get("turns"))]
        if not graders and alone and not turns and (told is not None or criteria is None):
            self._note_lost(where, "the whole case: none of its graders is known")
            return None
        known = {"id", "input", "input_messages", "input_files", "criteria", "expected_outcome"}
        known |= {"outcome", "expected_output", "expected_messages", "rubrics", "turns"}
        known |= {"execution", "target", "targets", "workspace"}
        self._unknown(raw, {*_CASE_KEYS, *GRADER_LISTS, *known}, where)
        return {
            "id": name,
            **{key: raw[key] for key in _CASE_KEYS if raw.get(key) is not None},
            **_non_empty(
                criteria=criteria,
                input=said,
                input_files=[self._move(file) for file in as_list(raw.get("input_files"))],
                expected_output=first_value(raw, "expected_output", "expected_messages"),
                execution=execution,
                workspace=self._workspace(raw.get("workspace"), where),
                assertions=graders,
                turns=turns,
            ),
        }

    def _execution(self, raw: ForeignTable, where: str) -> ForeignTable:
        told = as_table(raw.get("execution"))
        usual = {key for key, value in _DEFAULT_EXECUTION.items() if value in (None, told.get(key))}
        self._unknown(
            told,
            {*_EXECUTION_KEYS, *GRADER_LISTS, *usual, "target", "targets"},
            where,
            "execution.",
        )
        found: ForeignTable = {
            key: told[key] for key in _EXECUTION_KEYS if told.get(key) is not None
        }
        target, several = (told.get(key) or raw.get(key) for key in ("target", "targets"))
        if target is not None:
            found["target"] = target
        elif several is not None:
            found["targets"] = [self._target(one, where) for one in as_list(several)]
        return found

    def _target(self, told: object, where: str) -> object:
        if not is_table(told):
            return told
        self._unknown(told, {"name", "use_target"}, where, "execution.targets.")
        if "use_target" not in told:
            return told.get("name")
        return {"name": told.get("name"), "use_target": told["use_target"]}

    def _turn(self, raw: ForeignTable, where: str) -> ForeignTable:
        self._unknown(raw, {"input", "expected_output", "assertions"}, where, "turns.")
        return _non_empty(
            input=self._messages(raw.get("input")),
            expected_output=raw.get("expected_output"),
            assertions=self._graders(raw.get("assertions"), where),
        )

    def _graders(self, told: object, where: str) -> list[object]:
        return [one for each in as_list(told) if (one := self._grader(each, where)) is not None]

    def _grader(self, raw: object, where: str) -> object:
        if not is_table(raw):
            return raw
        if "include" in raw:
            return {"include": raw["include"]}
        kebab = str(raw.get("type", "")).replace("_", "-")
        kind = grader_type(kebab)
        if kind not in GRADERS:
            self._note_lost(where, f"a grader of the type {kebab!r}")
            return None
        known = {*_GRADER_KEYS, *GRADERS[kind].setting_names}
        known |= {"script"} if kind == "code-grader" else set()
        known |= {*GRADER_LISTS} if kind == "composite" else set()
        self._unknown(raw, known, where, f"{kind}: ")
        found: ForeignTable = {key: value for key, value in raw.items() if key in known} | {
            "type": kind
        }
        if kind == "composite":
            members = self._graders(first_value(raw, *GRADER_LISTS), where)
            found = {key: value for key, value in found.items() if key not in GRADER_LISTS}
            return {**found, "assertions": members} if members else None
        if "cwd" in found:
            found["cwd"] = self._move(found["cwd"])
        if kind == "tool-trajectory" and self._seed and "args_match" not in found:
            found["args_match"] = "superset"  # what `evalcases` mean by arguments
        return found

    def _messages(self, told: object) -> object:
        if not is_list(told):
            return told
        return [self._message(as_table(message)) for message in told]

    def _message(self, message: ForeignTable) -> ForeignTable:
        if isinstance(message.get("content"), list):
            blocks = [as_table(block) for block in as_list(message["content"])]
            return {**message, "content": [self._block(block) for block in blocks]}
        return message

    def _block(self, block: ForeignTable) -> ForeignTable:
        if block.get("type") != "file":
            return block
        return {"type": "file", "value": self._move(first_value(block, "value", "path", "text"))}

    def _workspace(self, told: object, where: str) -> ForeignTable:
        if isinstance(told, str):
            told = read_yaml(self._move.origin / told)
        raw = as_table(told)
        found: ForeignTable = {key: raw[key] for key in _WORKSPACE_KEYS if raw.get(key) is not None}
        for key, usual in (("isolation", "per_test"), ("mode", "temp")):
            if found.pop(key, usual) != usual:
                self._note(where, f"workspace.{key}: each attempt has its own workspace")
        self._unknown(raw, set(_WORKSPACE_KEYS), where, "workspace.")
        for key in ("template", "repository"):
            if key in found:
                found[key] = self._address(found[key])
        if "repos" in found:
            repos = [as_table(repo) for repo in as_list(found["repos"])]
            found["repos"] = [{**repo, "repo": self._address(repo.get("repo"))} for repo in repos]
        hooks = {
            name: self._hook(hook) if is_table(hook) else hook
            for name, hook in as_table(found.get("hooks")).items()
        }
        return found | ({"hooks": hooks} if hooks else {})

    def _address(self, told: object) -> object:
        return told if ":" in str(told).partition("/")[0] else self._move(told)

    def _hook(self, hook: ForeignTable) -> ForeignTable:
        return hook | ({"cwd": self._move(hook["cwd"])} if "cwd" in hook else {})

    def _unknown(self, raw: ForeignTable, known: set[str], where: str, above: str = "") -> None:
        for key in raw.keys() - known:
            self._note(where, f"{above}{key}")

    def _note(self, where: str, what: str) -> None:
        self._notes.append(self._not_carried_over(where, what))

    def _note_lost(self, where: str, what: str) -> None:
        self._lost.append(self._not_carried_over(where, what))

    def _not_carried_over(self, where: str, what: str) -> str:
        return f"{self._name}{', ' if where else ''}{where}: not carried over: {what}"


def _execution_graders(raw: ForeignTable) -> object:
    return first_value(as_table(raw.get("execution")), *GRADER_LISTS)


def _non_empty(**entries: object) -> ForeignTable:
    return {key: value for key, value in entries.items() if value not in (None, [], {}, "")}
