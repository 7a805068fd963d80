"""Configures a real OpenCode to use scripted models and nothing else."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from goent.opencode.process_launch import fake_plugin_install
from goent.testing.script import Script, ScriptedProvider
from goent.testing.scripted_server import ScriptedModels

_PACKAGES = {"openai": "@ai-sdk/openai-compatible", "anthropic": "@ai-sdk/anthropic"}
_SWITCHES = (
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_DISABLE_SHARE",
    "OPENCODE_PURE",
)


def hermetic_env(home: Path) -> dict[str, str]:
    """A complete environment for OpenCode: it reads and writes below `home`, and fetches nothing.

    Only `PATH` is inherited. The caller adds `OPENCODE_CONFIG` and, when it starts OpenCode in
    another directory, `PWD`, which OpenCode relies on.
    """
    private = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_CONFIG_HOME": home / ".config",
        "XDG_DATA_HOME": home / ".local" / "share",
        "XDG_STATE_HOME": home / ".local" / "state",
        "TMPDIR": home / "tmp",
    }
    for folder in private.values():
        folder.mkdir(parents=True, exist_ok=True)
    fake_plugin_install(private["XDG_CONFIG_HOME"] / "opencode")
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        **{name: str(folder) for name, folder in private.items()},
        **dict.fromkeys(_SWITCHES, "1"),
    }


def opencode_config(
    source: ScriptedModels | Script,
    *,
    url: str | None = None,
    keys: Mapping[str, str] | None = None,
    model: str | None = None,
) -> str:
    """The text of an `opencode.json` with the script's providers only.

    `url` is the server's address, needed where `source` is a script alone. `keys` are the values
    of providers' `apiKey`, such as `{env:MOONSHOT_API_KEY}` (default: the script's keys). `model`
    is the default (`provider/model`), else the script's first.
    """
    script = source.script if isinstance(source, ScriptedModels) else source
    address = url or (source.url if isinstance(source, ScriptedModels) else None)
    if address is None:
        raise ValueError("a script alone has no address: pass url=")
    first = next(f"{name}/{p.models[0]}" for name, p in script.providers.items())
    config = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "model": model or first,
        "enabled_providers": list(script.providers),
        "permission": "allow",
        "agent": {"title": {"disable": True}},
        "provider": {
            name: _entry(provider, f"{address}/{name}/v1", (keys or {}).get(name))
            for name, provider in script.providers.items()
        },
    }
    return msgspec.json.format(msgspec.json.encode(config), indent=2).decode()


def _entry(provider: ScriptedProvider, base_url: str, key: str | None) -> dict[str, object]:
    model = {
        "tool_call": True,
        "cost": provider.cost,
        "limit": {"context": provider.context, "output": provider.output},
    }
    return {
        "npm": _PACKAGES[provider.dialect],
        "options": {"baseURL": base_url, "apiKey": key or provider.key or "any"},
        "models": {name: {"name": name, **model} for name in provider.models},
    }
