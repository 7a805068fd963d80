"""Defines and checks the settings of an OpenCode target.

The one list of its settings: the reader of targets files takes it from here.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Final, Literal, get_type_hints

import msgspec
from msgspec import Meta

from goent.domain.errors import ConfigError
from goent.domain.settings import PermissionAction
from goent.domain.types import Value
from goent.evals.suites import AskPolicy, TargetSpec
from goent.evals.targets.target_settings import value_mistakes

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Permissions = PermissionAction | Mapping[str, PermissionAction | Mapping[str, PermissionAction]]

EDIT_TOOLS: Final = (
    "edit",
    "write",
    "patch",
    "multiedit",
    "apply_patch",
)  # one permission to OpenCode
# Fixed by a server that somebody else runs.
_OWN_SERVER_KEYS: Final = (
    *("executable", "binary", "args", "hostname", "port", "startup_timeout_seconds"),
    *("config", "mcp", "profile", "shared_server"),
)
# Targets that differ in one of these share no server.
_SERVER_IDENTITY_KEYS: Final = ("executable", "binary", "args", "config", "mcp", "profile", "env")
# The parts of OpenCode's own configuration that are checked here; OpenCode checks the rest.
_CHECKED_CONFIG: Final = {"provider": Mapping[str, object], "enabled_providers": tuple[str, ...]}


class OpenCodeTargetSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which OpenCode works, how, and what it may do. The defaults are in docs/evals.md."""

    executable: str | None = None
    binary: str | None = None  # another name for it
    args: tuple[str, ...] = ()
    base_url: str | None = None
    hostname: str = "127.0.0.1"
    port: Port = 0
    startup_timeout_seconds: Seconds = 60.0
    timeout_seconds: Seconds | None = None
    model: str = ""
    variant: str = ""
    agent: str = ""
    system_prompt: str = ""
    tools: Mapping[str, bool] = {}
    permission_policy: AskPolicy = "reject"
    permission: Permissions | None = None
    mcp: Mapping[str, object] = {}
    config: Mapping[str, object] = {}
    profile: Literal["hermetic", "user"] = "hermetic"
    env: Mapping[str, str] = {}
    cwd: str = ""
    shared_server: bool = True
    stream_logs: bool = True
    stream_log_dir: str | None = None

    @property
    def program(self) -> str | None:
        return self.executable or self.binary

    @property
    def is_hermetic(self) -> bool:
        """Whether only go-ent's and the target's own configuration apply."""
        return self.base_url is None and self.profile == "hermetic"


OPENCODE_SETTING_NAMES: Final = OpenCodeTargetSettings.__struct_fields__


def read_opencode_settings(spec: TargetSpec) -> OpenCodeTargetSettings:
    """Raises a `ConfigError` with every mistake: file, line, target and path of the key."""
    if found := [f"{path}: {message}" for path, message in opencode_mistakes(spec.settings)]:
        line = "" if spec.place.line is None else f":{spec.place.line}"
        where = f"{spec.place.file}{line}: target {spec.name!r} (opencode)"
        raise ConfigError("\n".join(f"{where}: {each}" for each in found))
    return msgspec.convert(dict(spec.settings), OpenCodeTargetSettings, strict=False)


def opencode_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Every mistake, by the path of its key."""
    known = get_type_hints(OpenCodeTargetSettings, include_extras=True)
    wrong = set[str]()
    for key, value in settings.items():
        if key not in known:
            yield key, f"is not a setting of an OpenCode target; known: {', '.join(known)}"
            continue
        for path, message in _value_mistakes(key, value, known[key]):
            wrong.add(key)
            yield path, message
    valid = {key: value for key, value in settings.items() if key in known and key not in wrong}
    yield from _contradictions(
        msgspec.convert(valid, OpenCodeTargetSettings, strict=False), settings
    )


def port_conflicts(specs: Iterable[TargetSpec]) -> Iterator[str]:
    """Targets that ask for the same port but cannot share its server."""
    first: dict[tuple[object, str], TargetSpec] = {}
    for spec in specs:
        port = str(spec.settings.get("port", 0))
        if spec.kind != "opencode" or port == "0":
            continue
        other = first.setdefault((spec.settings.get("hostname"), port), spec)
        differing = [
            key
            for key in _SERVER_IDENTITY_KEYS
            if spec.settings.get(key) != other.settings.get(key)
        ]
        if differing:
            yield (
                f"{spec.place.file}: target {spec.name!r}: port {port} is that of target {other.name!r}, too, "
                f"and they share no server, for {', '.join(differing)} differ; set another `port`, or none"
            )


def _value_mistakes(key: str, value: object, kind: object) -> Iterator[tuple[str, str]]:
    """Check each entry of a table by itself, so that the path names it."""
    entries = {
        "tools": bool,
        "env": str,
        "permission": PermissionAction | Mapping[str, PermissionAction],
    }
    if key in entries and isinstance(value, Mapping):
        table = msgspec.convert(value, dict[str, object], strict=False)
        for name, entry in table.items():
            yield from value_mistakes(f"{key}.{name}", entry, entries[key])
    else:
        yield from value_mistakes(key, value, kind)


def _contradictions(
    target: OpenCodeTargetSettings, given: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    yield from _server_contradictions(target, given)
    for key, kind in _CHECKED_CONFIG.items():
        if key in target.config:
            yield from value_mistakes(f"config.{key}", target.config[key], kind)
    folder = PurePath(target.cwd)
    if folder.is_absolute() or ".." in folder.parts:
        yield "cwd", f"must be a folder inside the attempt's own directory, not {target.cwd!r}"
    switched = {on for name, on in target.tools.items() if name in EDIT_TOOLS}
    if len(switched) > 1:
        yield (
            "tools",
            "edit, write and patch are one permission in OpenCode: switch them on or off together",
        )


def _server_contradictions(
    target: OpenCodeTargetSettings, given: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    if target.executable and target.binary:
        yield "binary", "has the same meaning as `executable`; keep one of them"
    if target.port and not target.shared_server:
        remedy = "remove it, or `shared_server: false`, which makes one for each attempt"
        yield "port", f"several servers cannot all have port {target.port}; {remedy}"
    if target.base_url is None:
        return
    if not target.base_url.startswith(("http://", "https://")):
        words = f"expected an address such as http://127.0.0.1:4096, not {target.base_url!r}"
        yield "base_url", words
    for key in _OWN_SERVER_KEYS:
        if key in given:
            yield key, "has no effect on the server at `base_url`, which somebody else runs"
