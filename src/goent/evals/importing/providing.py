"""Which target answers as a provider of promptfoo does?"""

from collections.abc import Sequence
from typing import Final

from goent.evals.importing.asserting import DECISIVE
from goent.evals.importing.documents import Move, Table, is_table, slug, table
from goent.evals.importing.targets import MODELS, by_api

_WORDS: Final = ("chat", "completion", "messages", "responses")  # between provider and model


_KNOWN: Final = ("id", "config", "label")


def providers(
    told: Sequence[object], file: str, move: Move
) -> tuple[list[Table], list[str], list[str]]:
    """Targets, what was not carried over, and what of that changes their answers."""
    found: list[Table] = []
    notes: list[str] = []
    lost: list[str] = []
    for one in told:
        name, config, label, more = _entry(one)
        wanted = slug(label or name) or "target"
        taken = {target["name"] for target in found}
        numbers = (f"{wanted}-{number}" for number in range(2, len(taken) + 3))
        unique = next(each for each in (wanted, *numbers) if each not in taken)
        target, left = _target(unique, name, dict(config), move)
        where = f"{file}, provider {name!r}: not carried over"
        if target is None:
            notes.append(
                f"{where}: the whole provider; write a target for it to .goent/targets.yaml"
            )
            continue
        found.append(target)
        notes += [f"{where}: config.{key}" for key in sorted(left)]
        for key in more:
            (lost if key in DECISIVE else notes).append(f"{where}: {key}")
    return found, notes, lost


def _entry(told: object) -> tuple[str, Table, str, list[str]]:
    """`id`, or a table with it, or a table whose only name it is; and which keys are left."""
    if not is_table(told):
        return str(told), {}, "", []
    name, inner = next(iter(told.items()), ("", None))
    entry = told if "id" in told else table(inner)
    if "id" in told:
        name = str(told["id"])
    left = [key for key in entry if key not in _KNOWN]
    return name, table(entry.get("config")), str(entry.get("label") or ""), left


def _target(name: str, provider: str, config: Table, move: Move) -> tuple[Table | None, set[str]]:
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
            found: Table = {"name": name, "provider": "opencode"}
            provider_id, model = config.pop("provider_id", None), config.pop("model", None)
            if model:
                found["model"] = f"{provider_id}/{model}" if provider_id else model
            if isinstance(tools := config.get("tools"), dict):
                found["tools"] = tools
                del config["tools"]
            return found, set(config)
        case _ if head in MODELS and rest:
            words = rest.split(":")
            model = ":".join(words[1:] if words[0] in _WORDS and words[1:] else words)
            return by_api(name, MODELS[head], model), set(config)
        case _:
            return None, set()
