"""Decides how agents and commands are confined, and how they are started.

There are two kinds. An agent (OpenCode or any other) lives long and may serve several workers: it can write
where they work, and its commands are confined again, each to its own worker's folder. A command (a verify
command, a hook, a grader) is confined once.
"""

import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from goent.domain.sandbox_port import (
    CHECKOUT_ACCESS,
    CommandAccess,
    ConfinedCommand,
    SandboxLevel,
    SandboxSettings,
)
from goent.domain.types import Value
from goent.proc.programs import locate_command
from goent.sandbox import sandbox_paths
from goent.sandbox.confinement import (
    OPTIONS_SEPARATOR,
    OPTIONS_VARIABLE,
    PRIVATE_FOLDERS,
    Confinement,
    folder_mark,
    goent_programs,
    launcher_command,
    temporary_folder,
)
from goent.sandbox.sandbox_hints import HintContext, explain_refusal
from goent.sandbox.sandbox_level import find_level, known_level
from goent.system.project_folders import (
    config_dir,
    default_state_path,
    existing_runtime_bases,
    home_dir,
    runtime_folders,
    state_path,
)
from goent.system.project_lock import LOCK_FILE

SHELLS = ("bash", "zsh", "sh", "dash", "ksh")
# They name sockets and screens of the user's session, which are not visible inside.
SESSION_VARIABLES = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "TMUX"),
    *("TMUX_PANE", "STY", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST"),
)
OPENCODE_FILE_VARIABLES = ("OPENCODE_CONFIG", "OPENCODE_MODELS_PATH", "OPENCODE_CONFIG_DIR")
XDG_VARIABLES = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
# Of OpenCode's data: logins, and other sessions.
OPENCODE_PRIVATE_FILES = (
    *("auth.json", "mcp-auth.json", "account.json", "opencode.db", "opencode.db-wal"),
    *("storage", "log"),
)
OPENCODE_SETTINGS_FILES = ("opencode.json", "opencode.jsonc", "config.json")  # may contain keys
PRIVATE_TMP = Path("/tmp")  # noqa: S108 (inside, a private folder is mounted there)


class SandboxedAgent(Value, frozen=True, kw_only=True):
    """A long-lived process that works for workers in `roots`, with its own data in `data_folders`.

    `readable` folders stay readable even inside a temporary one. `is_foreign`: it runs commands by itself,
    so go-ent's own files are hidden from it as well. `ports` are those that it needs: its own, and the
    gateway's if it calls its models there.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    roots: tuple[Path, ...]
    data_folders: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    ports: tuple[int, ...] = ()
    is_foreign: bool = False


class ProcessSandbox:
    """The sandbox of one project. `environ` is the user's environment, `state` the project's state folder."""

    def __init__(
        self,
        *,
        settings: Callable[[], SandboxSettings],
        environ: Callable[[], Mapping[str, str]],
        state: Path,
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._state = state
        self._agents_level: SandboxLevel | None = None  # of the agent that was started last

    async def level(self) -> SandboxLevel:
        """The level of confinement now."""
        return await find_level(self._settings().level)

    @property
    def confines(self) -> bool:
        return self._known_level().name != "none"

    def _known_level(self) -> SandboxLevel:
        return known_level(self._settings().level)

    @asynccontextmanager
    async def command(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        reach: CommandAccess = CHECKOUT_ACCESS,
    ) -> AsyncGenerator[ConfinedCommand]:
        """How to start a command that works in a folder, confined to what it may reach."""
        level = await self.level()
        if level.name == "none":
            yield ConfinedCommand(command=tuple(command), env=env)
            return
        async with temporary_folder(self._state) as temporary:
            confined = self._command_confinement(
                level, cwd, temporary, seen=(env, command), reach=reach
            )
            yield ConfinedCommand(
                command=confined.wrap([os.fsdecode(word) for word in locate_command(command, env)]),
                env=_with_tmp(env, confined),
                mark=folder_mark(temporary),
                explain=lambda output: self._explain(confined, output, env),
            )

    @asynccontextmanager
    async def agent(self, agent: SandboxedAgent) -> AsyncGenerator[ConfinedCommand]:
        """How to start an agent; its commands must be run by `shell`."""
        level = await self.level()
        if level.name == "none":
            yield ConfinedCommand(command=agent.command, env=agent.env)
            return
        self._agents_level = level
        async with temporary_folder(self._state) as temporary:
            confined = self._agent_confinement(level, agent, temporary)
            yield ConfinedCommand(
                command=confined.wrap(agent.command),
                env=_with_tmp(agent.env, confined),
                mark=folder_mark(temporary),
            )

    @asynccontextmanager
    async def session(
        self, cwd: Path, *, roots: tuple[Path, ...], env: Mapping[str, str]
    ) -> "AsyncGenerator[SessionLimits]":
        """The limits of commands that go-ent's own agent runs for an editor."""
        (here,) = _resolve_existing((cwd,))
        async with temporary_folder(self._state) as temporary:

            async def confinement() -> Confinement:
                level = await self.level()
                reach = CommandAccess(also=roots)
                return self._command_confinement(
                    level, here, temporary, seen=(env, ()), reach=reach
                )

            settings = self._settings()
            confines = settings.level != "off" and sys.platform.startswith("linux")
            yield SessionLimits(confinement, temporary, confines=confines)

    def writable_folders(self, cwd: Path) -> tuple[Path, ...]:
        """The folders that a worker in `cwd` can write: its checkout, and what git needs outside it."""
        top = sandbox_paths.checkout_top(self._resolve_base(cwd), self._environ())
        return (top, *sandbox_paths.git_writable_folders(top))

    def _resolve_base(self, cwd: Path) -> Path:
        """Resolve links on the way to the user's own folders only: those below could be a worker's."""
        environ = self._environ()
        bases = (state_path(environ), home_dir(environ))
        base = next((base for base in bases if cwd.is_relative_to(base)), None)
        return base.resolve() / cwd.relative_to(base) if base else cwd

    def shell_variables(
        self, cwd: Path, env: Mapping[str, str], also: tuple[Path, ...] = ()
    ) -> dict[str, str]:
        """The variables that `shell` needs for an agent's command that works in `cwd`.

        `env` is the agent's environment; `also` are further writable folders.
        """
        level = self._agents_level or self._known_level()  # a running agent keeps its level
        if level.name == "none":
            return {}
        confined = self._command_confinement(
            level, cwd, None, seen=(env, ()), reach=CommandAccess(also=also)
        )
        return {OPTIONS_VARIABLE: OPTIONS_SEPARATOR.join(confined.options())}

    def hint_for(self, cwd: Path, output: str, env: Mapping[str, str]) -> str:
        """A hint for a command in `cwd` that failed with this output; empty if the sandbox was not the cause.

        `env` is its agent's environment.
        """
        level = self._agents_level or self._known_level()
        if level.name == "none":
            return ""
        confined = self._command_confinement(
            level, cwd, None, seen=(env, ()), reach=CHECKOUT_ACCESS
        )
        return self._explain(confined, output, env)

    def _explain(self, confined: Confinement, output: str, env: Mapping[str, str]) -> str:
        sought = HintContext(
            confinement=confined,
            settings=self._settings(),
            environ=self._environ(),
            home=Path(env.get("HOME") or home_dir(self._environ())),
        )
        return explain_refusal(sought, output)

    def shell(self) -> Path | None:
        """A shell that confines itself by `shell_variables` and without them runs nothing.

        None without a sandbox.
        """
        if self._known_level().name == "none":
            return None
        real = _real_shell(self._environ())
        folder = self._state / "shell"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        script = folder / real.name
        words = [
            *map(shlex.quote, launcher_command()),
            "--from-environment",
            OPTIONS_VARIABLE,
            "--",
            shlex.quote(str(real)),
        ]
        text = f'#!/bin/sh\nexec {" ".join(words)} "$@"\n'
        if not script.exists() or script.read_text() != text:
            new = script.with_suffix(f".{os.getpid()}")
            new.write_text(text)
            new.chmod(0o700)
            new.replace(script)
        return script

    def _agent_confinement(
        self, level: SandboxLevel, agent: SandboxedAgent, temporary: Path
    ) -> Confinement:
        settings, environ = self._settings(), self._environ()
        for folder in agent.data_folders:
            folder.mkdir(parents=True, exist_ok=True)
        given = (*agent.roots, *agent.data_folders)
        asked = _resolve_existing(_without_escapes(self._opened_paths(agent.env), given))
        writable = tuple(dict.fromkeys((*_resolve_existing(given), *asked)))
        shown = (
            *_command_folders(agent.command, environ),
            *agent.readable,
            *(() if agent.is_foreign else (self._state,)),
        )
        repositories = sandbox_paths.main_repositories(agent.roots)
        kept = self._kept_paths(agent.env, listed=settings.read == "listed")
        listed = (*self._listed_paths(), *writable, *repositories, *shown, *kept)
        return Confinement(
            level=level.name,
            is_nestable=True,
            is_scoped=agent.is_foreign,
            writable=writable,
            temporary=temporary,
            read_only=_protected_below(writable, *goent_programs()),
            always_read_only=_protected_below(
                writable, config_dir(environ), state_path(environ) / "trust"
            ),
            hidden=_resolve_existing(
                (
                    *self._sockets(writable),
                    *(_goent_folders(environ) if agent.is_foreign else ()),
                    *self._lock_files(level),
                )
            ),
            kept_visible=(*kept, *shown),
            readable=listed if settings.read == "listed" else None,
            network=settings.network,
            ports=agent.ports,
            unix_sockets=_opens_socket(asked, writable),
            unset=_unset_variables(agent.env, settings),
        )

    def _command_confinement(
        self,
        level: SandboxLevel,
        cwd: Path,
        temporary: Path | None,
        *,
        seen: tuple[Mapping[str, str], Sequence[str]],
        reach: CommandAccess,
    ) -> Confinement:
        settings, environ = self._settings(), self._environ()
        cwd = self._resolve_base(cwd)
        top = sandbox_paths.checkout_top(cwd, environ)
        # If a worker has replaced its folder by a link, nothing is started there.
        own = (
            self.writable_folders(cwd)
            if reach.writable is None
            else _resolve_existing(reach.writable)
        )
        asked = _resolve_existing(
            _without_escapes(self._opened_paths(seen[0]), (*own, *reach.also))
        )
        writable = tuple(dict.fromkeys((*own, *_resolve_existing((*reach.also, *asked)))))
        guarded = sandbox_paths.guarded_paths(cwd, top) if reach.writable is None else ()
        closed = [path for path in guarded if not sandbox_paths.is_below(path, asked)]
        shown = self._visible_paths(top, own, seen[1], reach)
        readable = (*self._listed_paths(), *writable, *shown)
        return Confinement(
            level=level.name,
            writable=writable,
            temporary=temporary,
            read_only=(*closed, *_protected_below(writable, *goent_programs())),
            always_read_only=_protected_below(writable, *_goent_folders(environ)),
            hidden=_resolve_existing(
                (
                    *_goent_folders(environ),
                    *_secret_files(seen[0]),
                    *(self._sockets(writable) if temporary else ()),
                    *self._lock_files(level),
                )
            ),
            kept_visible=(*self._kept_paths(seen[0]), *shown),
            readable=readable if settings.read == "listed" else None,
            network="off" if settings.network != "all" else "all",
            unix_sockets=_opens_socket(asked, writable),
            unset=_unset_variables(seen[0], settings),
        )

    def _opened_paths(self, env: Mapping[str, str]) -> tuple[Path, ...]:
        """The folders that the settings make writable, also below a process's own home.

        A missing folder below a home is created: a cache is opened before its first use.
        """
        home = home_dir(self._environ())
        own = Path(env.get("HOME") or home)
        asked = self._settings().writable
        moved = (own / path.relative_to(home) for path in asked if path.is_relative_to(home))
        found = tuple(dict.fromkeys((*asked, *moved)))
        for path in found:
            # A name such as `agent.sock` is not a folder's.
            if sandbox_paths.is_below(path, (home, own)) and not path.suffix:
                with suppress(OSError):
                    path.mkdir(parents=True, exist_ok=True)
        return found

    def _listed_paths(self) -> tuple[Path, ...]:
        settings = self._settings()
        environ = self._environ()
        own = (*goent_programs(), *existing_runtime_bases(environ))
        return (*sandbox_paths.listed_folders(environ), *own, *settings.readable)

    def _sockets(self, writable: Sequence[Path]) -> tuple[Path, ...]:
        """Sockets of unconfined programs that no private folder covers."""
        apart = (*PRIVATE_FOLDERS, *writable)
        return tuple(
            path
            for path in sandbox_paths.listening_sockets()
            if not sandbox_paths.is_below(path, apart)
        )

    def _lock_files(self, level: SandboxLevel) -> tuple[Path, ...]:
        """The project's locks: a process that can open a lock can keep it from others.

        Only with namespaces, because Landlock hides a file by listing everything beside it; but there a
        process has no Unix sockets, and the state folder is closed to commands.
        """
        if level.name != "namespace":
            return ()
        key, environ = self._state.name, self._environ()
        usual = default_state_path(environ) / "projects" / key  # of clients without XDG_STATE_HOME
        beside = runtime_folders(key, environ)
        own = (
            self._state / "starting",
            *(each / LOCK_FILE for each in (self._state, usual, *beside)),
        )
        return tuple(path for path in own if path.exists())

    def _visible_paths(
        self, top: Path, own: Sequence[Path], command: Sequence[str], reach: CommandAccess
    ) -> tuple[Path, ...]:
        """What a command must see besides what it can write; of go-ent's own folders, only what is `handed`."""
        environ = self._environ()
        secret = _resolve_existing(_goent_folders(environ))
        named = (top, *_command_folders(command, environ), *reach.named)
        seen = [
            path for path in _resolve_existing(named) if not sandbox_paths.is_below(path, secret)
        ]
        borrowed = (objects for folder in own for objects in sandbox_paths.borrowed_objects(folder))
        repository = sandbox_paths.main_repositories((top,))
        return (*seen, *repository, *borrowed, *_resolve_existing(reach.handed))

    def _kept_paths(self, env: Mapping[str, str], *, listed: bool = False) -> tuple[Path, ...]:
        """What a process must see even inside a temporary folder, or if it is not listed."""
        search = (each for each in env.get("PATH", "").split(os.pathsep) if each)
        homes = [
            env[name]
            for name in ("HOME", *XDG_VARIABLES, *OPENCODE_FILE_VARIABLES)
            if env.get(name)
        ]
        if listed:  # only homes that go-ent has created
            ours = state_path(self._environ())
            homes = [
                each
                for each in homes
                if sandbox_paths.is_file(Path(each)) or Path(each).is_relative_to(ours)
            ]
        runtime = existing_runtime_bases(self._environ())
        given = self._settings().readable
        found = (*map(Path, (*search, *homes)), *goent_programs(), *runtime, *given)
        there = (path for path in dict.fromkeys(found) if path.is_absolute())
        return tuple(path for path in there if sandbox_paths.path_exists(path))


class SessionLimits:
    """The limits of the commands of one session of go-ent's own agent."""

    def __init__(
        self,
        confinement: Callable[[], Awaitable[Confinement]],
        temporary: Path,
        *,
        confines: bool,
    ) -> None:
        self._confinement = confinement
        self._temporary = temporary
        self.confines = confines
        self.variables: Mapping[str, str] = {}

    async def options(self) -> tuple[str, ...]:
        confined = await self._confinement()
        if confined.level == "none":
            self.confines = False
            return ()
        self.variables = _with_tmp({}, confined)
        return confined.options()


class InheritedLimits:
    """The limits that a daemon passes to its worker's agent, which is itself confined."""

    variables: Mapping[str, str] = {}

    def __init__(self, options: str) -> None:
        self._options = options
        self.confines = bool(options)

    async def options(self) -> tuple[str, ...]:
        return tuple(self._options.split(OPTIONS_SEPARATOR)) if self._options else ()


def _with_tmp(env: Mapping[str, str], confined: Confinement) -> Mapping[str, str]:
    folder = PRIVATE_TMP if confined.level == "namespace" else confined.temporary
    return {**env, "TMPDIR": str(folder)}


def _resolve_existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The existing paths, without links."""
    return tuple(dict.fromkeys(path.resolve() for path in paths if sandbox_paths.path_exists(path)))


def _without_escapes(asked: Sequence[Path], writable: Sequence[Path]) -> tuple[Path, ...]:
    """Without paths in which a worker's link leads out of what the worker can write."""
    return tuple(
        path for path in asked if not _leads_out(path, _resolve_existing((*writable, *asked)))
    )


def _leads_out(path: Path, writable: Sequence[Path]) -> bool:
    around = [folder.resolve() for folder in path.parents]
    places = [place for place in writable if any(each.is_relative_to(place) for each in around)]
    return bool(places) and not sandbox_paths.is_below(path.resolve(), places)


def _protected_below(writable: Sequence[Path], *paths: Path) -> tuple[Path, ...]:
    """What stays read-only inside writable folders: go-ent's own code, and files that decide about workers."""
    return tuple(
        path for path in _resolve_existing(paths) if sandbox_paths.is_below(path, writable)
    )


def _goent_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """go-ent's own folders, with journals, trust and settings."""
    return (state_path(environ), config_dir(environ))


def _secret_files(env: Mapping[str, str]) -> tuple[Path, ...]:
    """OpenCode's files that contain keys, or other sessions."""
    home = home_dir(env)
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share", "opencode")
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "opencode")
    named = (Path(env["OPENCODE_CONFIG"]),) if env.get("OPENCODE_CONFIG") else ()
    places = (config, home / ".opencode")
    settings = (place / name for place in places for name in OPENCODE_SETTINGS_FILES)
    return (*(data / name for name in OPENCODE_PRIVATE_FILES), *settings, *named)


def _command_folders(command: Sequence[str], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of the files that a command line names, and of the packages they belong to."""
    paths = (
        Path(word)
        for word in command
        if word.startswith("/") and len(word) < os.pathconf("/", "PC_PATH_MAX")
    )
    files = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113 (a Path raises for what is too long)
    home = home_dir(environ)
    return tuple(folder for path in files for folder in sandbox_paths.program_folders(path, home))


def _unset_variables(env: Mapping[str, str], settings: SandboxSettings) -> tuple[str, ...]:
    """Variables that name unreachable sockets; those of opened sockets stay."""
    opened = tuple(map(str, (*settings.writable, *_resolve_existing(settings.writable))))
    named = ((name, env.get(name, "")) for name in SESSION_VARIABLES)
    return tuple(name for name, value in named if not any(path in value for path in opened))


def _opens_socket(asked: Sequence[Path], writable: Sequence[Path]) -> bool:
    """Whether the settings open a Unix socket; one that a worker can create does not count."""
    lasting = (path for path in asked if not sandbox_paths.is_below(path.parent, writable))
    return any(path.is_socket() for path in lasting)


def _real_shell(environ: Mapping[str, str]) -> Path:
    wanted = Path(environ.get("SHELL", ""))
    if wanted.name in SHELLS and wanted.is_absolute() and os.access(wanted, os.X_OK):
        return wanted
    return next(
        (path for path in map(Path, ("/bin/bash", "/usr/bin/bash")) if path.exists()),
        Path("/bin/sh"),
    )
