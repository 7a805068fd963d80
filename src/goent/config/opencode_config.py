"""Reads the user's own `opencode.json`: backends, models, and which of them are offered.

A repository's `opencode.json` is no source: whoever wrote it could send keys anywhere.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from goent.config.provider_settings import read_price_table
from goent.config.settings_tree import Items, Node, Scalar, SettingsFields, Table
from goent.domain.settings import Backend, is_secret_header
from goent.domain.types import Provider, Secret, Value
from goent.system.plain_files import read_plain

_ENV_ONLY: Final = re.compile(r"\{env:([^}]+)\}")


MAX_KEY_FILE: Final = 1_000_000  # bytes of a file that a key is in


_REFERENCE: Final = re.compile(r"\{(env|file):([^}]+)\}")


_ANTHROPIC: Final = "@ai-sdk/anthropic"


# Packages with a wire format that go-ent does not implement: OpenCode must call these itself.
_UNSUPPORTED_PACKAGES: Final = frozenset(
    f"@ai-sdk/{name}" for name in ("amazon-bedrock", "azure", "cohere", "google", "google-vertex")
)


# Packages with a wire format that go-ent implements; None is OpenCode's default.
SUPPORTED_PACKAGES: Final = frozenset(
    (None, "@ai-sdk/openai-compatible", "@ai-sdk/openai", "@ai-sdk/anthropic")
)


class OpenCodeConfig(Value, frozen=True, kw_only=True):
    """What one `opencode.json` defines, restricted by `enabled_providers` and `disabled_providers`."""

    backends: Mapping[str, Backend] = {}
    providers: tuple[Provider, ...] = ()
    model: str | None = None
    enabled: tuple[str, ...] | None = None
    disabled: tuple[str, ...] = ()

    def offers(self, backend: str) -> bool:
        listed = self.enabled is None or backend in self.enabled
        return listed and backend not in self.disabled

    @property
    def chosen_backend(self) -> tuple[str, ...]:
        """The backend of `model`, which OpenCode's catalogue may know though the file does not."""
        backend, slash, _ = (self.model or "").partition("/")
        return (backend,) if slash and backend and self.offers(backend) else ()


class _BackendOffer(Value, frozen=True, kw_only=True):
    backend: Backend
    models: tuple[Provider, ...]


class OpenCodeReader:
    """Reads one `opencode.json`; `folder` and `environ` resolve its `{file:…}` and `{env:…}`."""

    def __init__(self, folder: Path, home: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._home = home
        self._environ = environ

    def read(self, fields: SettingsFields) -> OpenCodeConfig:
        offers = fields.tables("provider", self._read_offer)
        config = OpenCodeConfig(
            model=fields.text("model", None),
            enabled=fields.texts("enabled_providers") if fields.has("enabled_providers") else None,
            disabled=fields.texts("disabled_providers"),
        )
        offered = {name: offer for name, offer in offers.items() if config.offers(name)}
        return replace(
            config,
            backends={name: offer.backend for name, offer in offered.items()},
            providers=tuple(model for offer in offered.values() for model in offer.models),
        )

    def _read_offer(self, fields: SettingsFields) -> _BackendOffer:
        backend = fields.name
        npm = fields.text("npm", None)
        options = fields.section("options", lambda f: self._endpoint(f, backend, npm))
        models = fields.tables("models", lambda f: self._model(f, backend))
        hidden = fields.texts("blacklist")
        shown = fields.texts("whitelist") or tuple(models)
        listed = (model for name, model in models.items() if name in shown and name not in hidden)
        return _BackendOffer(backend=options, models=tuple(listed))

    def _endpoint(self, fields: SettingsFields, backend: str, npm: str | None) -> Backend:
        anthropic = npm == _ANTHROPIC or (npm is None and backend == "anthropic")
        key = fields.text("apiKey", None)
        variable = _ENV_ONLY.fullmatch(key) if key else None
        resolved = self._resolve_references(fields, "apiKey", key) if key and not variable else None
        base_url = fields.text("baseURL", None)
        return Backend(
            id=backend,
            dialect="anthropic" if anthropic else "openai",
            base_url=self._resolve_references(fields, "baseURL", base_url) if base_url else None,
            key_env=variable.group(1).strip() if variable else None,
            key=Secret(resolved) if resolved else None,
            npm=npm,
            source="opencode.json",
            headers=fields.section("headers", self._headers),
            header_envs=fields.section("headers", _header_variables),
        )

    def _model(self, fields: SettingsFields, backend: str) -> Provider:
        return Provider(
            name=f"{backend}/{fields.name}",
            backend=backend,
            model=fields.name,
            context_limit=fields.section("limit", lambda f: f.integer("context", 0)) or None,
            price=fields.section("cost", read_price_table) if fields.has("cost") else None,
            options=self._options(fields),
        )

    def _options(self, fields: SettingsFields) -> bytes:
        """The options that OpenCode passes to the model's package, as JSON."""
        node = fields.node("options")
        if not isinstance(node, Table) or not node.entries:
            return b""
        told = _json_value(
            node, lambda text: self._resolve_references(fields, "options", text) or ""
        )
        return msgspec.json.encode(told)

    def _headers(self, fields: SettingsFields) -> tuple[tuple[str, Secret], ...]:
        """The headers of every call to the provider."""
        found = ((name, fields.text(name, None)) for name in fields.keys)
        return tuple(
            (name, Secret(resolved))
            for name, value in found
            if value and (resolved := self._resolve_references(fields, name, value))
        )

    def _resolve_references(self, fields: SettingsFields, key: str, text: str) -> str | None:
        def resolved(match: re.Match[str]) -> str:
            kind, name = match.group(1), match.group(2).strip()
            if kind == "env":
                return self._environ.get(name, "")
            return self._file(fields, key, name)

        return _REFERENCE.sub(resolved, text).rstrip("/" if key == "baseURL" else None) or None

    def _file(self, fields: SettingsFields, key: str, name: str) -> str:
        path = self._home / name[2:] if name.startswith("~/") else self._folder / name
        try:
            return read_plain(path, MAX_KEY_FILE).decode().strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "no text"
            fields.note_mistake(
                key, f"the file {name!r} cannot be read: {why}; OpenCode needs it too"
            )
            return ""


def _header_variables(headers: SettingsFields) -> tuple[str, ...]:
    """Environment variables in headers whose names look like a key's."""
    told = (headers.text(name, "") for name in headers.keys if is_secret_header(name))
    found = (match for text in told for match in _REFERENCE.finditer(text))
    return tuple(match.group(2).strip() for match in found if match.group(1) == "env")


def is_callable_package(npm: str | None) -> bool:
    """Whether go-ent can call a backend of this package itself."""
    return npm not in _UNSUPPORTED_PACKAGES


def read_logins(fields: SettingsFields) -> tuple[str, ...]:
    """The names of the providers that OpenCode is logged in to; their credentials are not read."""
    return tuple(name for name in fields.keys if "/" not in name)


def _json_value(node: Node, resolved: Callable[[str], str]) -> object:
    """The node as a JSON value, with references in texts resolved."""
    match node:
        case Table():
            return {name: _json_value(below, resolved) for name, below in node.entries.items()}
        case Items():
            return [_json_value(item, resolved) for item in node.items]
        case Scalar(kind="text"):
            return resolved(node.text)
        case _:
            return msgspec.Raw(node.text.encode())
