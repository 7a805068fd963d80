"""Who answers for a target that another tool knows?"""

from collections.abc import Mapping, Sequence
from typing import Final

from goent.evals.files.targets import COMMON, KINDS, snake_case
from goent.evals.importing.documents import Table, items, table
from goent.evals.suites import AGENTS

# Models that go-ent asks itself, by the names that providers have there and here.
MODELS: Final[Mapping[str, str]] = {
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
_UNKNOWN: Final = (
    "add its ACP agent to `agents` in .goent/config.yaml and use provider goent, or write its command "
    "as provider cli"
)
_BATCHING: Final = "provider_batching"
_STATUSES: Final = "retry_status_codes"


def by_api(name: str, provider: str, model: object) -> Table:
    """A target that is a model, asked without tools."""
    found: Table = {"name": name, "provider": "goent", "subprovider": provider, "method": "api"}
    return found | ({"model": model} if model else {})


def ours(told: Sequence[object], file: str) -> tuple[list[Table], list[str]]:
    """Targets as our file has them, and what was not carried over."""
    notes: list[str] = []
    tables = ({snake_case(key): value for key, value in table(one).items()} for one in told)
    found = [target for one in tables if (target := _target(one, file, notes))]
    names = {target["name"] for target in found}
    for target in found:
        _without_strangers(target, names, file, notes)
    return found, notes


def _target(raw: Table, file: str, notes: list[str]) -> Table | None:
    name = str(raw.get("name", ""))
    where = f"{file}, target {name!r}: not carried over"
    if "judge_target" in raw:
        raw = raw | {"grader_target": raw.pop("judge_target")}
    kind = str(raw.get("provider", "")).replace("_", "-")
    dropped = {_BATCHING} if kind in MODELS or kind in AGENTS else {_BATCHING, _STATUSES}
    common: Table = {"name": name} | {
        key: value for key, value in raw.items() if key in COMMON - dropped
    }
    if "use_target" in raw:
        return common
    if kind in MODELS:
        left = raw.keys() - COMMON - {"model"}
        notes += [f"{where}: {key}; go-ent has keys and addresses of its own" for key in left]
        return common | by_api(name, MODELS[kind], raw.get("model"))
    if kind not in KINDS:
        notes.append(f"{where}: the whole target, of provider {kind!r}; {_UNKNOWN}")
        return None
    if kind == "cli" and "command_template" in raw:
        raw = raw | {"command": raw.pop("command_template")}
    settings: Table = {key: raw[key] for key in KINDS[kind].names if key in raw}
    for path, words in KINDS[kind].mistakes(settings):
        key = path.partition(".")[0].partition("[")[0]
        if settings.pop(key, None) is not None:
            notes.append(f"{where}: {key}, which {words}")
    notes += [f"{where}: {key}" for key in raw.keys() - COMMON - set(KINDS[kind].names)]
    notes += [f"{where}: {key}" for key in sorted(dropped) if key in raw]
    return common | {"provider": kind} | settings


def _without_strangers(target: Table, names: set[object], file: str, notes: list[str]) -> None:
    """What it says of targets that were left behind goes too."""
    where = f"{file}, target {target['name']!r}: not carried over"
    for key in ("grader_target", "fallback_targets", "use_target"):
        told = [name for name in items(target.get(key)) if "${{" not in str(name)]
        gone = [name for name in told if name not in names]
        if not gone:
            continue
        notes += [f"{where}: {key} {name!r}, which is not there" for name in gone]
        kept = [name for name in items(target[key]) if name not in gone]
        if kept and key == "fallback_targets":
            target[key] = kept
        else:
            del target[key]
