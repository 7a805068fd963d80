"""Checks without a daemon whether go-ent can work here, and names a remedy for each problem."""

import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import anyio
import msgspec

from goent import __version__
from goent.agents.opencode_program import (
    OPENCODE,
    TESTED_RANGE,
    check_agent,
    check_version,
    find_opencode,
    find_ripgrep,
    is_newer_than_tested,
    read_version,
)
from goent.config.settings_loader import load_settings
from goent.config.trust_survey import check_opencode_trust
from goent.daemon.daemon_connection import NoDaemon, connect
from goent.domain.errors import (
    ConfigError,
    GoentError,
    NotTrusted,
    OpenCodeMissing,
    UnsupportedVersion,
    WorkerCrashed,
)
from goent.domain.local_servers import LOCAL_SERVERS, ModelListing, missing_model_message
from goent.domain.provider_condition import HealthKey, ProviderCondition
from goent.domain.settings import AgentSettings, Backend, Settings, withheld_warnings
from goent.domain.types import Provider, Value
from goent.proc.programs import find_program
from goent.providers.call_plan import condition_text
from goent.providers.model_list import survey_servers
from goent.providers.provider_health import account_id, condition_of, repair_record
from goent.providers.track_record import read_health
from goent.sandbox.sandbox_level import find_level
from goent.system.daemon_environment import fingerprint
from goent.system.project_folders import (
    UnsafeFolder,
    find_project,
    home_dir,
    project_key,
    runtime_dir,
    state_dir,
)
from goent.system.project_lock import find_holder

FindingVerdict = Literal["fine", "note", "wrong"]
OLDEST_PYTHON = (3, 11)
OTHERS_MODE = 0o077
VERSION_TIMEOUT_S = 60.0  # seconds for a program to say its version
MISTAKE_EXIT_CODE = 2
MISSING_EXIT_CODE = 3
USUAL_PORTS: Mapping[str, int] = {server.id: server.port for server in LOCAL_SERVERS.values()}
MAX_NAMES = 5


class DoctorFinding(Value, frozen=True, kw_only=True):
    """One thing that was looked at. `exit_code` is what it alone would cost."""

    subject: str
    verdict: FindingVerdict
    text: str
    remedy: str = ""
    exit_code: int = 0


class Diagnosis(Value, frozen=True, kw_only=True):
    """All findings; `exit_code` is that of the worst one."""

    usable: bool
    exit_code: int
    findings: tuple[DoctorFinding, ...]


def examine(
    cwd: Path, environ: Mapping[str, str], usual: Mapping[str, int] = USUAL_PORTS
) -> Diagnosis:
    """Look at everything; one trouble does not hide the next.

    `usual` are the ports of this machine where model servers are looked for that nobody configured.
    """
    try:
        project = find_project(cwd)
    except UnsafeFolder as error:
        finding = _wrong("project", str(error))
        return Diagnosis(
            usable=False, exit_code=finding.exit_code, findings=(*_goent_and_python(), finding)
        )
    settings, files = _settings(project, environ)
    command = settings.opencode.command if settings else None
    findings = (
        *_goent_and_python(),
        *_git(environ),
        *_sandbox(settings),
        *_opencode(command, environ),
        *files,
        *(_trust(settings, environ) if settings else ()),
        *(_providers(settings, environ, usual) if settings else ()),
        *(_health(settings, environ) if settings else ()),
        *_folders(project, environ),
        *_daemon(cwd, environ),
    )
    code = max(finding.exit_code for finding in findings)
    return Diagnosis(usable=code == 0, exit_code=code, findings=findings)


def installed_opencode(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The OpenCode that this user's settings name, or that is simply there."""
    settings, _ = _settings(find_project(cwd), environ)
    return find_opencode(settings.opencode.command if settings else None, environ)


def _fine(subject: str, text: str) -> DoctorFinding:
    return DoctorFinding(subject=subject, verdict="fine", text=text)


def _note(subject: str, text: str, remedy: str = "") -> DoctorFinding:
    return DoctorFinding(subject=subject, verdict="note", text=text, remedy=remedy)


def _wrong(
    subject: str, text: str, remedy: str = "", code: int = MISSING_EXIT_CODE
) -> DoctorFinding:
    return DoctorFinding(subject=subject, verdict="wrong", text=text, remedy=remedy, exit_code=code)


def _goent_and_python() -> Iterator[DoctorFinding]:
    yield _fine("go-ent", f"{__version__} at {Path(__file__).parents[1]}")
    version = platform.python_version()
    if sys.version_info >= OLDEST_PYTHON:
        yield _fine("python", f"{version} at {sys.executable}")
    else:
        yield _wrong("python", version, "install Python 3.11 or newer")


def _git(environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    if found := find_program("git", environ):
        yield _fine("git", found)
    else:
        yield _note("git", "not on the PATH", "install git: worktrees and diffs need it")


def _sandbox(settings: Settings | None) -> Iterator[DoctorFinding]:
    level = anyio.run(find_level, settings.sandbox.level if settings else "auto")
    match level.name:
        case "namespace":
            yield _fine("sandbox", "namespace: workers see a file system and sockets of their own")
        case "landlock":
            text = f"landlock: workers write only where they work ({level.reason})"
            yield _note("sandbox", text, "docs/sandbox.md says what that leaves open")
        case _:
            yield _note("sandbox", f"none: {level.reason}", "docs/sandbox.md")


def _opencode(command: str | None, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    try:
        program = find_opencode(command, environ)
        version = check_version(_version(program, environ), repr(str(program)))
    except (OpenCodeMissing, UnsupportedVersion) as unusable:
        what, _, remedy = str(unusable).partition(": ")
        yield _wrong("opencode", what, remedy)
        return
    except (OSError, WorkerCrashed) as error:
        yield _wrong("opencode", str(error), "make it executable, or install it again")
        return
    if is_newer_than_tested(version):
        text = f"{version} at {program}: newer than the versions go-ent is {TESTED_RANGE}"
        yield _note("opencode", text)
    else:
        yield _fine("opencode", f"{version} at {program}")
    if ripgrep := find_ripgrep(program, environ):
        yield _fine("ripgrep", str(ripgrep))
    else:
        remedy = "install ripgrep: OpenCode's grep and glob need `rg`, and would download it"
        yield _note("ripgrep", "not found", remedy)


def _version(program: Path, environ: Mapping[str, str]) -> str:
    async def ask() -> str:
        return await read_version(program, environ, patience=VERSION_TIMEOUT_S)

    return anyio.run(ask)


def _settings(
    project: Path, environ: Mapping[str, str]
) -> tuple[Settings | None, tuple[DoctorFinding, ...]]:
    try:
        settings = load_settings(project, environ)
    except ConfigError as error:
        mistakes = str(error).splitlines()
        return None, tuple(_wrong("settings", line, code=MISTAKE_EXIT_CODE) for line in mistakes)
    files = ", ".join(_display_path(path, project, environ) for path in settings.files)
    found = _fine("settings", files) if files else _note("settings", "no files", "go-ent init")
    notes = (_note("settings", warning) for warning in settings.warnings)
    return settings, (_fine("project", str(project)), found, *notes)


def _trust(settings: Settings, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    for line in withheld_warnings(settings.withheld):
        yield _note("trust", line, "look at it and allow it with `go-ent trust`")
    whole = settings.opencode.project_config
    try:
        check_opencode_trust(settings.project, settings.project, environ, whole=whole)
    except NotTrusted as error:
        yield _note("trust", str(error))


def _display_path(path: Path, project: Path, environ: Mapping[str, str]) -> str:
    if path.is_relative_to(project):
        return str(path.relative_to(project))
    home = home_dir(environ)
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _providers(
    settings: Settings, environ: Mapping[str, str], usual: Mapping[str, int]
) -> Iterator[DoctorFinding]:
    listings, others = anyio.run(survey_servers, settings, environ, usual)
    findings = [_provider(p, settings, environ, listings) for p in settings.providers]
    yield from _grouped_by_backend(settings, findings)
    yield from _served_models(settings, listings)
    yield from _unconfigured_servers(others)
    if not any(finding.verdict == "fine" for finding in findings):
        remedy = (
            "set a key such as ANTHROPIC_API_KEY, log in with `opencode auth login`, "
            "or name your own in .goent/providers.yaml (`go-ent init` writes one); a model server of "
            "your own, such as Ollama, needs no key"
        )
        yield _wrong("providers", "none can be used", remedy)
    elif settings.default_provider is None:
        remedy = "set default_provider in .goent/config.yaml, or pass --provider"
        yield _note("providers", "none is the default", remedy)


def _grouped_by_backend(
    settings: Settings, findings: Sequence[DoctorFinding]
) -> Iterator[DoctorFinding]:
    """What nobody wrote down is told by backend: a key brings several models, some with two names."""
    groups: dict[tuple[str, str], list[Provider]] = {}
    for provider, finding in zip(settings.providers, findings, strict=True):
        _, _, how = finding.text.partition(", ")
        if provider.name in settings.written or finding.verdict != "fine" or not how:
            yield finding
        else:
            groups.setdefault((provider.backend, how), []).append(provider)
    for (backend, how), providers in groups.items():
        models = dict.fromkeys(provider.model for provider in providers)
        short = [f"{p.name} ({p.model})" for p in providers if "/" not in p.name]
        names = f"; short names: {', '.join(short)}" if short else ""
        yield _fine(f"provider {backend}", f"{how}: {', '.join(models)}{names}")


def _served_models(
    settings: Settings, listings: Mapping[str, ModelListing]
) -> Iterator[DoctorFinding]:
    """What the user's own servers have that no file names."""
    for backend, listing in listings.items():
        written = [p.model for p in settings.providers if p.backend == backend]
        known = {served.name for model in written if (served := listing.find(model))}
        names = [f"{backend}/{served.name}" for served in listing.models]
        names = [name for name in names if name.removeprefix(f"{backend}/") not in known]
        if names and not listing.trouble:
            yield _fine(f"server {backend}", f"{listing.base_url}, also has {_name_list(names)}")


def _unconfigured_servers(others: Mapping[str, ModelListing]) -> Iterator[DoctorFinding]:
    """Servers that run here, and that nobody has told go-ent of."""
    for name, listing in others.items():
        models = [served.name for served in listing.models]
        entry = f"{name}: {{provider: {name}, model: '{models[0]}'}}"
        if not listing.base_url.endswith(f":{LOCAL_SERVERS[name].port}/v1"):
            entry = f"{entry[:-1]}, base_url: '{listing.base_url}'}}"
        yield _note(
            f"server {name}",
            f"answers at {listing.base_url} with {_name_list(models)}, but no settings file names it",
            f"to use it, put `{entry}` below `providers:` in ~/.config/go-ent/providers.yaml",
        )


def _name_list(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    told = ", ".join(names[:MAX_NAMES])
    return f"{told} and {more} more" if more > 0 else told


def _local_provider(
    subject: str, provider: Provider, backend: Backend, listing: ModelListing | None
) -> DoctorFinding:
    """A server of the user's own: whether it runs, and has the model."""
    url = backend.base_url or ""
    if listing is None:
        return _note(subject, f"{provider.opencode_model}, no key", f"export {backend.key_env}=…")
    trouble = listing.trouble
    if not trouble and listing.find(provider.model) is None:
        trouble = missing_model_message(provider.backend, url, provider.model)
    if trouble:
        what, _, remedy = trouble.partition(": ")
        return _note(subject, what, remedy)
    return _fine(subject, f"{provider.opencode_model}, at {url}, needs no key")


def _provider(
    provider: Provider,
    settings: Settings,
    environ: Mapping[str, str],
    listings: Mapping[str, ModelListing],
) -> DoctorFinding:
    subject = f"provider {provider.name}"
    backend = settings.backends.get(provider.backend)
    if agent := settings.agents.get(provider.backend):
        return _agent_provider(provider, agent, environ)
    if backend is None:
        return _note(subject, "no backend")
    if backend.local:
        return _local_provider(subject, provider, backend, listings.get(backend.id))
    if backend.key_env and environ.get(backend.key_env):
        return _fine(subject, f"{provider.opencode_model}, key in {backend.key_env}")
    if backend.key:
        return _fine(subject, f"{provider.opencode_model}, key in {backend.source}")
    if backend.key_env:
        text = f"{provider.opencode_model}, no key"
        return _note(subject, text, f"export {backend.key_env}=…")
    return _fine(subject, f"{provider.opencode_model}, by OpenCode itself ({backend.source})")


def _agent_provider(
    provider: Provider, agent: AgentSettings, environ: Mapping[str, str]
) -> DoctorFinding:
    subject, program = f"provider {provider.name}", agent.command[0]
    found = find_program(program, environ)
    if found is None:
        remedy = "install it, or correct `command` under `agents` in .goent/config.yaml"
        return _note(subject, f"an agent of its own, but there is no program {program!r}", remedy)
    if Path(found).name == OPENCODE:
        try:
            check_agent(_version(Path(found), environ), provider.backend)
        except (UnsupportedVersion, WorkerCrashed) as unusable:
            what, _, remedy = str(unusable).partition(": ")
            return _note(subject, what, remedy)
    return _fine(subject, f"an agent of its own: {found}")


def _health(settings: Settings, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Who is out, and why, as the calls of all this user's go-ents have told."""
    path, now = state_dir(environ) / "health.db", time.time()
    try:
        kept = read_health(path)
    except (GoentError, OSError, sqlite3.Error) as error:
        yield _note("health", f"{path}: {error}", "stop go-ent and move the file away")
        return
    out: list[str] = []
    for provider in settings.providers:
        whose = account_id(settings.backends.get(provider.backend), environ)
        record = kept.get(HealthKey(provider.backend, provider.model, whose))
        seen = condition_of(repair_record(record, now), now) if record else ProviderCondition()
        if seen.is_unavailable(now):
            out.append(provider.name)
            remedy = f"its fallbacks serve; `go-ent providers reset {provider.name}` asks it again"
            yield _note(f"provider {provider.name}", condition_text(seen, now), remedy)
    if out and len(out) == len(settings.providers):
        remedy = "wait, name another in .goent/providers.yaml, or `go-ent providers reset`"
        yield _note("providers", "none is well now", remedy)


def _folders(project: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    yield _folder("runtime folder", lambda: runtime_dir(project_key(project), environ))
    yield _folder("state folder", lambda: state_dir(environ))


def _folder(subject: str, find: Callable[[], Path]) -> DoctorFinding:
    try:
        path = find()
        mode = path.stat().st_mode & 0o777
    except OSError as error:
        return _wrong(subject, str(error))
    if mode & OTHERS_MODE:
        return _note(subject, f"{path} is open to others ({mode:o})", f"chmod 700 {path}")
    return _fine(subject, f"{path} ({mode:o})")


def _daemon(cwd: Path, environ: Mapping[str, str]) -> Iterator[DoctorFinding]:
    try:
        connection = connect(cwd, "control", start=False)
    except NoDaemon as none:
        if none.code == 1:
            yield _fine("daemon", "none runs; the next command starts one")
        else:
            yield _wrong("daemon", str(none))
        return
    except OSError as error:
        yield _wrong("daemon", str(error))
        return
    connection.socket.close()
    hello = connection.hello
    yield _fine("daemon", f"process {hello.get('pid')}, version {hello.get('version')}")
    held = find_holder(project_key(find_project(cwd)), environ)
    if held and held.state and Path(held.state).resolve() != state_dir(environ).resolve():
        text = f"the daemon keeps its journal in {held.state}, this shell would use {state_dir(environ)}"
        remedy = "give XDG_STATE_HOME the same value everywhere, also in your MCP client's `env`"
        yield _note("state folder", text, remedy)
    keys = msgspec.convert(hello.get("fingerprints") or {}, dict[str, str])
    for name, theirs in keys.items():
        ours = environ.get(name)
        if ours and fingerprint(ours) != theirs:
            text = f"{fingerprint(ours)} here, {theirs} in the daemon, whose workers use that one"
            yield _note(f"key {name}", text, "go-ent daemon stop: the next daemon takes yours")


VERDICT_MARKS: dict[FindingVerdict, str] = {"fine": "✓", "note": "!", "wrong": "✗"}
VERDICT_COLOURS: dict[FindingVerdict, str] = {
    "fine": "\x1b[32m",
    "note": "\x1b[33m",
    "wrong": "\x1b[31m",
}
COLOUR_RESET = "\x1b[0m"


def show_diagnosis(diagnosis: Diagnosis) -> None:
    colourful = sys.stdout.isatty()
    width = max(len(finding.subject) for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        mark = VERDICT_MARKS[finding.verdict]
        if colourful:
            mark = f"{VERDICT_COLOURS[finding.verdict]}{mark}{COLOUR_RESET}"
        print(f"{mark} {finding.subject:<{width}}  {finding.text}")
        if finding.remedy:
            print(f"  {'':<{width}}  → {finding.remedy}")
    print()
    if diagnosis.usable:
        print('go-ent can work here: go-ent run "a task"')
    else:
        print("go-ent cannot work here yet: see the lines marked ✗")
