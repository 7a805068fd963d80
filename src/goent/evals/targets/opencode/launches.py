"""How is a server of ours started for a target: which program, which configuration, which environment?"""

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from goent.domain.ports import Gate
from goent.domain.settings import Settings
from goent.domain.types import Provider, Value
from goent.drivers.environment import Surroundings
from goent.drivers.opencode.binary import find_opencode
from goent.drivers.opencode.catalogue import Catalogue
from goent.drivers.opencode.content import held_backends
from goent.drivers.opencode.environment import Launch
from goent.drivers.opencode.launching import (
    check_trusted,
    gate_port,
    gated_content,
    known_models,
    process_environment,
    start_folder,
)
from goent.evals.ports import TargetError
from goent.evals.targets.opencode.settings import OpenCodeSettings

Tree = dict[str, object]

# The subagents that OpenCode brings along: a user may have let them do more than ours may.
_ASKING: Final = dict.fromkeys(("edit", "bash", "external_directory", "webfetch"), "ask")
SUBAGENTS: Final[Mapping[str, object]] = {
    "general": {"permission": {"*_*": "ask", **_ASKING}},
    "explore": {"permission": _ASKING},
}


class Choice(Value, frozen=True, kw_only=True):
    """Which model is asked. `held`: go-ent has the key, and the calls pass its gate.

    Without a `model`, the server's own configuration chooses.
    """

    provider: Provider
    model: str = ""
    held: bool = False


def choose_model(told: OpenCodeSettings, around: Surroundings) -> Choice:
    """What the target names: `provider/model`, or one of go-ent's providers by its name; else the first of those."""
    settings, environ = around.settings(), around.environ()
    if told.base_url is not None:
        if told.model and "/" not in told.model:
            raise _unknown(
                told.model, "and the server at `base_url` knows no providers of go-ent's"
            )
        where = f"the OpenCode server at {told.base_url}"
        unknown = Provider(name=told.model or where, backend=where, model=told.model or "its own")
        return Choice(provider=unknown, model=told.model)
    provider = _provider(told, settings)
    if provider is None:
        own = Provider(name="opencode", backend="opencode", model="its own")
        if "model" in told.config:
            return Choice(provider=own)
        raise TargetError(
            "no_model",
            "the target names no `model`, and go-ent knows no provider: set `model: provider/model`",
        )
    held = provider.backend in held_backends(settings, environ)
    return Choice(provider=provider, model=provider.opencode_model, held=held)


def _provider(told: OpenCodeSettings, settings: Settings) -> Provider | None:
    if not told.model:
        return None if "model" in told.config else next(iter(settings.providers), None)
    for provider in settings.providers:
        if told.model in (provider.name, provider.opencode_model):
            return provider
    backend, _, model = told.model.partition("/")
    if not model:
        known = ", ".join(provider.name for provider in settings.providers) or "none"
        raise _unknown(told.model, f"and no provider of go-ent's; these are: {known}")
    return Provider(name=told.model, backend=backend, model=model)


def _unknown(model: str, why: str) -> TargetError:
    return TargetError("unknown_model", f"model {model!r} is no `provider/model`, {why}")


class Terms(Value, frozen=True, kw_only=True):
    """What tells servers apart: targets with the same terms share one."""

    told: OpenCodeSettings
    backend: str

    def fingerprint(self, around: Surroundings, gate: Gate, roots: tuple[Path, ...]) -> str:
        told, around = self.told, in_profile(self.told, around)
        own = (told.program, told.args, told.hostname, told.port, told.env)
        content = self._content(around, gate, token="")
        settings = around.settings()
        spelt = msgspec.json.encode(
            (own, content, settings.opencode, settings.sandbox, roots), enc_hook=str
        )
        return hashlib.sha256(spelt).hexdigest()

    def launch(self, around: Surroundings, gate: Gate, roots: tuple[Path, ...]) -> Launch:
        """`roots` is where attempts work. Raises `OpenCodeMissing` if there is no such program."""
        around = in_profile(self.told, around)
        settings, environ = around.settings(), around.environ()
        check_trusted(around, settings.project)
        program = find_opencode(self.told.program or settings.opencode.command, environ)
        token = gate.issue_token()
        plain = gated_content(around, gate, token=token)
        content = self._content(around, gate, token=token)
        enabled = msgspec.convert(content["enabled_providers"], tuple[str, ...])
        catalogue = known_models(around, plain)
        start = start_folder(around)
        return Launch(
            program=program,
            cwd=start,
            env={
                **process_environment(around, plain, program=program, cwd=start),
                "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(content).decode(),
                **self.told.env,
            },
            password=f"goent_{secrets.token_urlsafe(32)}",  # the shape that is redacted in logs
            token=token,
            fingerprint=self.fingerprint(around, gate, roots),
            start_timeout=self.told.startup_timeout_seconds,
            sandbox=around.sandbox,
            roots=roots,
            shown=(settings.project,),
            gate_port=gate_port(gate),
            standby="never",
            catalogue=Catalogue(backends=enabled, folder=catalogue.folder),
            hostname=self.told.hostname,
            port=self.told.port,
            arguments=self.told.args,
        )

    def _content(self, around: Surroundings, gate: Gate, *, token: str) -> Tree:
        """Ours, with what the target adds; its own providers, and its model's, are enabled too."""
        plain = gated_content(around, gate, token=token)
        content = msgspec.convert(msgspec.to_builtins(plain), Tree)
        if not self.told.is_ours_alone:
            content = _merged(content, {"agent": SUBAGENTS})
        added = dict(self.told.config)
        if self.told.mcp:
            added = _merged(added, {"mcp": self.told.mcp})
        own = msgspec.convert(added.get("provider", {}), dict[str, object])
        enabled = (*plain.enabled_providers, self.backend, *own)
        content["enabled_providers"] = [name for name in dict.fromkeys(enabled) if name]
        if "plugin" in added:  # beside our guard, not in its place
            ours = msgspec.convert(content["plugin"], list[object])
            added["plugin"] = [*msgspec.convert(added["plugin"], list[object]), *ours]
        return _merged(content, added)


def in_profile(told: OpenCodeSettings, around: Surroundings) -> Surroundings:
    """The target's profile, whatever workers have: the user's OpenCode has no say unless the target says so."""
    settings = around.settings()
    config = settings.opencode.config_path if told.profile == "user" else None
    opencode = replace(settings.opencode, profile=told.profile, config_path=config)
    return replace(around, settings=lambda: replace(settings, opencode=opencode))


def _merged(below: Tree, above: Mapping[str, object]) -> Tree:
    """Tables key by key, as OpenCode merges its files; all else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            table = msgspec.convert(old, Tree)
            merged[key] = _merged(table, msgspec.convert(value, Tree, strict=False))
        else:
            merged[key] = value
    return merged
