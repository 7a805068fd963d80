"""Decides how the processes that work for workers are confined, and starts them so.

There are two kinds. An agent (OpenCode, or any other) lives long and may serve several workers: it can
write where they work, and its commands are confined again, each to its own worker's folder. A command
(a verify command, a hook, a grader) is confined once.
"""

import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from goent.domain.sandbox import (
    CHECKOUT,
    Reach,
    SandboxLevel,
    SandboxSettings,
    Start,
)
from goent.domain.types import Value
from goent.lock import LOCK
from goent.project import (
    config_dir,
    default_state,
    home_dir,
    runtime_folders,
    runtime_path,
    state_path,
)
from goent.sandbox import folders
from goent.sandbox.confinement import (
    OPTIONS,
    PRIVATE,
    SEPARATOR,
    Confinement,
    launcher,
    own_programs,
)
from goent.sandbox.hints import Sought, explain
from goent.sandbox.level import find_level, known_level
from goent.sandbox.temporary import mark_of, temporary_folder

SHELLS = ("bash", "zsh", "sh", "dash", "ksh")
# They name sockets and screens of the user's session, which are not there inside.
SESSION = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "TMUX"),
    *("TMUX_PANE", "STY", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST"),
)
OPENCODE_FILES = ("OPENCODE_CONFIG", "OPENCODE_MODELS_PATH", "OPENCODE_CONFIG_DIR")
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
# Of OpenCode's data: logins, and what other sessions said.
LOGINS = (
    *("auth.json", "mcp-auth.json", "account.json", "opencode.db", "opencode.db-wal"),
    *("storage", "log"),
)
SETTINGS = ("opencode.json", "opencode.jsonc", "config.json")  # keys may stand in them
PRIVATE_TMP = Path("/tmp")  # noqa: S108 (inside, a private folder is mounted there)


class Agent(Value, frozen=True, kw_only=True):
    """A long-lived process that works for workers. `own` are folders with its own data.

    `shown` are folders that it can read even if they lie in a temporary one. `foreign`: it runs commands by
    itself, so go-ent's own files are hidden from it as well. `ports` are those that it needs: the gateway's, if
    it calls its models there, and its own.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    roots: tuple[Path, ...]
    own: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    ports: tuple[int, ...] = ()
    foreign: bool = False


class Sandbox:
    """For one project. `environ` is the user's own environment, `state` a folder of go-ent's."""

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
        self._of_agents: SandboxLevel | None = None  # of the last that was confined

    async def level(self) -> SandboxLevel:
        """How processes are confined now."""
        return await find_level(self._settings().level)

    @property
    def confines(self) -> bool:
        return self._known_level().name != "none"

    def _known_level(self) -> SandboxLevel:
        return known_level(self._settings().level)

    @asynccontextmanager
    async def command(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], reach: Reach = CHECKOUT
    ) -> AsyncGenerator[Start]:
        """How to start a command that works in a folder, confined to what it may reach."""
        level = await self.level()
        if level.name == "none":
            yield Start(command=tuple(command), env=env)
            return
        async with temporary_folder(self._state) as temporary:
            confined = self._for_command(level, cwd, temporary, seen=(env, command), reach=reach)
            yield Start(
                command=confined.wrap(_located(command, env)),
                env=_with_tmp(env, confined),
                mark=mark_of(temporary),
                explain=lambda output: self._explain(confined, output, env),
            )

    @asynccontextmanager
    async def agent(self, agent: Agent) -> AsyncGenerator[Start]:
        """How to start an agent; its commands are to be run by `shell`."""
        level = await self.level()
        if level.name == "none":
            yield Start(command=agent.command, env=agent.env)
            return
        self._of_agents = level
        async with temporary_folder(self._state) as temporary:
            confined = self._for_agent(level, agent, temporary)
            yield Start(
                command=confined.wrap(agent.command),
                env=_with_tmp(agent.env, confined),
                mark=mark_of(temporary),
            )

    @asynccontextmanager
    async def session(
        self, cwd: Path, *, roots: tuple[Path, ...], env: Mapping[str, str]
    ) -> "AsyncGenerator[SessionLimits]":
        """The limits of commands that go-ent's own agent runs for an editor."""
        (here,) = _resolved((cwd,))
        async with temporary_folder(self._state) as temporary:

            async def confinement() -> Confinement:
                level = await self.level()
                reach = Reach(also=roots)
                return self._for_command(level, here, temporary, seen=(env, ()), reach=reach)

            settings = self._settings()
            confines = settings.level != "off" and sys.platform.startswith("linux")
            yield SessionLimits(confinement, temporary, confines=confines)

    def writes(self, cwd: Path) -> tuple[Path, ...]:
        """What whoever works in a folder can write: its checkout, and what git needs outside that."""
        top = folders.checkout_top(self._settled(cwd), self._environ())
        return (top, *folders.git_writes(top))

    def _settled(self, cwd: Path) -> Path:
        """Links on the way to the user's own folders are followed; those below could be a worker's."""
        environ = self._environ()
        bases = (state_path(environ), home_dir(environ))
        base = next((base for base in bases if cwd.is_relative_to(base)), None)
        return base.resolve() / cwd.relative_to(base) if base else cwd

    def shell_variables(
        self, cwd: Path, env: Mapping[str, str], also: tuple[Path, ...] = ()
    ) -> dict[str, str]:
        """What `shell` needs for a command of an agent's that works in `cwd`, and may write there.

        `env` is the agent's environment: where its own data are. `also` are further folders.
        """
        level = self._of_agents or self._known_level()  # one that runs stays as it was started
        if level.name == "none":
            return {}
        confined = self._for_command(level, cwd, None, seen=(env, ()), reach=Reach(also=also))
        return {OPTIONS: SEPARATOR.join(confined.options())}

    def hint_for(self, cwd: Path, output: str, env: Mapping[str, str]) -> str:
        """What to tell of a command in `cwd` that failed with these words; nothing if it was no refusal.

        `env` is its agent's environment.
        """
        level = self._of_agents or self._known_level()
        if level.name == "none":
            return ""
        confined = self._for_command(level, cwd, None, seen=(env, ()), reach=CHECKOUT)
        return self._explain(confined, output, env)

    def _explain(self, confined: Confinement, output: str, env: Mapping[str, str]) -> str:
        sought = Sought(
            confined=confined,
            settings=self._settings(),
            environ=self._environ(),
            home=Path(env.get("HOME") or home_dir(self._environ())),
        )
        return explain(sought, output)

    def shell(self) -> Path | None:
        """A shell that confines itself by `shell_variables`; None without a sandbox.

        Without them it runs nothing.
        """
        if self._known_level().name == "none":
            return None
        real = _real_shell(self._environ())
        folder = self._state / "shell"
        folder.mkdir(0o700, parents=True, exist_ok=True)
        script = folder / real.name
        words = [*map(_quoted, launcher()), "--from-environment", OPTIONS, "--", _quoted(str(real))]
        text = f'#!/bin/sh\nexec {" ".join(words)} "$@"\n'
        if not script.exists() or script.read_text() != text:
            new = script.with_suffix(f".{os.getpid()}")
            new.write_text(text)
            new.chmod(0o700)
            new.replace(script)
        return script

    def _for_agent(self, level: SandboxLevel, agent: Agent, temporary: Path) -> Confinement:
        settings, environ = self._settings(), self._environ()
        for folder in agent.own:
            folder.mkdir(parents=True, exist_ok=True)
        given = (*agent.roots, *agent.own)
        asked = _resolved(_unmoved(self._asked(agent.env), given))
        writable = tuple(dict.fromkeys((*_resolved(given), *asked)))
        shown = (
            *_named(agent.command, environ),
            *agent.shown,
            *(() if agent.foreign else (self._state,)),
        )
        repositories = folders.main_repositories(agent.roots)
        kept = self._kept(agent.env, listed=settings.read == "listed")
        listed = (*self._listed(), *writable, *repositories, *shown, *kept)
        return Confinement(
            level=level.name,
            nestable=True,
            scoped=agent.foreign,
            writable=writable,
            temporary=temporary,
            read_only=_below(writable, *own_programs()),
            deciding=_below(writable, config_dir(environ), state_path(environ) / "trust"),
            hidden=_resolved(
                (
                    *self._sockets(writable),
                    *(_own_folders(environ) if agent.foreign else ()),
                    *self._locks(level),
                )
            ),
            kept=(*kept, *shown),
            readable=listed if settings.read == "listed" else None,
            network=settings.network,
            ports=agent.ports,
            unix_sockets=_has_socket(asked, writable),
            unset=_unset(agent.env, settings),
        )

    def _for_command(
        self,
        level: SandboxLevel,
        cwd: Path,
        temporary: Path | None,
        *,
        seen: tuple[Mapping[str, str], Sequence[str]],
        reach: Reach,
    ) -> Confinement:
        settings, environ = self._settings(), self._environ()
        cwd = self._settled(cwd)
        top = folders.checkout_top(cwd, environ)
        # A worker's folder is as it was at its start. If it is a link by now, nothing is started there.
        own = self.writes(cwd) if reach.writable is None else _resolved(reach.writable)
        asked = _resolved(_unmoved(self._asked(seen[0]), (*own, *reach.also)))
        writable = tuple(dict.fromkeys((*own, *_resolved((*reach.also, *asked)))))
        guarded = folders.guarded_paths(cwd, top) if reach.writable is None else ()
        closed = [path for path in guarded if not folders.is_below(path, asked)]
        shown = self._shown(top, own, seen[1], reach)
        readable = (*self._listed(), *writable, *shown)
        return Confinement(
            level=level.name,
            writable=writable,
            temporary=temporary,
            read_only=(*closed, *_below(writable, *own_programs())),
            deciding=_below(writable, *_own_folders(environ)),
            hidden=_resolved(
                (
                    *_own_folders(environ),
                    *_secrets(seen[0]),
                    *(self._sockets(writable) if temporary else ()),
                    *self._locks(level),
                )
            ),
            kept=(*self._kept(seen[0]), *shown),
            readable=readable if settings.read == "listed" else None,
            network="off" if settings.network != "all" else "all",
            unix_sockets=_has_socket(asked, writable),
            unset=_unset(seen[0], settings),
        )

    def _asked(self, env: Mapping[str, str]) -> tuple[Path, ...]:
        """What the settings open for writing; below the home of a process that has one of its own, too.

        A folder below a home that is not there yet is made: whoever opens a cache does so before its first use.
        """
        home = home_dir(self._environ())
        own = Path(env.get("HOME") or home)
        asked = self._settings().writable
        moved = (own / path.relative_to(home) for path in asked if path.is_relative_to(home))
        found = tuple(dict.fromkeys((*asked, *moved)))
        for path in found:
            # A name like `agent.sock` is no folder's.
            if folders.is_below(path, (home, own)) and not path.suffix:
                with suppress(OSError):
                    path.mkdir(parents=True, exist_ok=True)
        return found

    def _listed(self) -> tuple[Path, ...]:
        settings = self._settings()
        environ = self._environ()
        own = (*own_programs(), *runtime_path(environ))
        return (*folders.listed_folders(environ), *own, *settings.readable)

    def _sockets(self, writable: Sequence[Path]) -> tuple[Path, ...]:
        """Ways to programs that are not confined, where no private folder covers them already."""
        apart = (*PRIVATE, *writable)
        return tuple(
            path for path in folders.listening_sockets() if not folders.is_below(path, apart)
        )

    def _locks(self, level: SandboxLevel) -> tuple[Path, ...]:
        """What decides who serves the project: whoever can open a lock can keep it from others.

        By namespaces alone: Landlock hides a file by naming all that lies beside it. There a
        process has no Unix sockets anyhow, and the state folder is closed to commands.
        """
        if level.name != "namespace":
            return ()
        key, environ = self._state.name, self._environ()
        usual = default_state(environ) / "projects" / key  # of who comes without XDG_STATE_HOME
        beside = runtime_folders(key, environ)
        own = (self._state / "starting", *(each / LOCK for each in (self._state, usual, *beside)))
        return tuple(path for path in own if path.exists())

    def _shown(
        self, top: Path, own: Sequence[Path], command: Sequence[str], reach: Reach
    ) -> tuple[Path, ...]:
        """What a command must see beside what it can write. go-ent's own folders open for what it is handed only."""
        environ = self._environ()
        secret = _resolved(_own_folders(environ))
        named = (top, *_named(command, environ), *reach.named)
        seen = [path for path in _resolved(named) if not folders.is_below(path, secret)]
        borrowed = (objects for folder in own for objects in folders.borrowed_objects(folder))
        repository = folders.main_repositories((top,))
        return (*seen, *repository, *borrowed, *_resolved(reach.handed))

    def _kept(self, env: Mapping[str, str], *, listed: bool = False) -> tuple[Path, ...]:
        """What a process must see even if it lies in a temporary folder, or is not listed."""
        search = (each for each in env.get("PATH", "").split(os.pathsep) if each)
        homes = [env[name] for name in ("HOME", *XDG, *OPENCODE_FILES) if env.get(name)]
        if listed:  # of homes only those that go-ent has made
            ours = state_path(self._environ())
            homes = [
                each
                for each in homes
                if folders.is_file(Path(each)) or Path(each).is_relative_to(ours)
            ]
        runtime = runtime_path(self._environ())
        given = self._settings().readable
        found = (*map(Path, (*search, *homes)), *own_programs(), *runtime, *given)
        there = (path for path in dict.fromkeys(found) if path.is_absolute())
        return tuple(path for path in there if folders.is_there(path))


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


class GivenLimits:
    """The limits that a daemon has given to its worker's agent, which is confined itself."""

    variables: Mapping[str, str] = {}

    def __init__(self, options: str) -> None:
        self._options = options
        self.confines = bool(options)

    async def options(self) -> tuple[str, ...]:
        return tuple(self._options.split(SEPARATOR)) if self._options else ()


def _with_tmp(env: Mapping[str, str], confined: Confinement) -> Mapping[str, str]:
    folder = PRIVATE_TMP if confined.level == "namespace" else confined.temporary
    return {**env, "TMPDIR": str(folder)}


def _resolved(paths: Iterable[Path]) -> tuple[Path, ...]:
    """As the kernel will know them, links followed."""
    return tuple(dict.fromkeys(path.resolve() for path in paths if folders.is_there(path)))


def _unmoved(asked: Sequence[Path], writable: Sequence[Path]) -> tuple[Path, ...]:
    """Without those on whose way a worker can put a link, and where one leads out of what it can write."""
    return tuple(path for path in asked if not _leads_out(path, _resolved((*writable, *asked))))


def _leads_out(path: Path, writable: Sequence[Path]) -> bool:
    around = [folder.resolve() for folder in path.parents]
    places = [place for place in writable if any(each.is_relative_to(place) for each in around)]
    return bool(places) and not folders.is_below(path.resolve(), places)


def _below(writable: Sequence[Path], *paths: Path) -> tuple[Path, ...]:
    """What stays closed even where everything around it is open: it decides about workers, or is go-ent itself."""
    return tuple(path for path in _resolved(paths) if folders.is_below(path, writable))


def _own_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """go-ent's own, where journals, trust and settings are."""
    return (state_path(environ), config_dir(environ))


def _secrets(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Files of OpenCode's that hold keys, or what other sessions said."""
    home = home_dir(env)
    data = Path(env.get("XDG_DATA_HOME") or home / ".local/share", "opencode")
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "opencode")
    named = (Path(env["OPENCODE_CONFIG"]),) if env.get("OPENCODE_CONFIG") else ()
    places = (config, home / ".opencode")
    settings = (place / name for place in places for name in SETTINGS)
    return (*(data / name for name in LOGINS), *settings, *named)


def _named(command: Sequence[str], environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders of the files that a command line names, and of the packages they belong to."""
    paths = (
        Path(word)
        for word in command
        if word.startswith("/") and len(word) < os.pathconf("/", "PC_PATH_MAX")
    )
    files = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113 (a Path raises for what is too long)
    home = home_dir(environ)
    return tuple(folder for path in files for folder in folders.program_folders(path, home))


def _unset(env: Mapping[str, str], settings: SandboxSettings) -> tuple[str, ...]:
    """Variables that name sockets out of reach: of those that are opened, it must know."""
    opened = tuple(map(str, (*settings.writable, *_resolved(settings.writable))))
    named = ((name, env.get(name, "")) for name in SESSION)
    return tuple(name for name, value in named if not any(path in value for path in opened))


def _has_socket(asked: Sequence[Path], writable: Sequence[Path]) -> bool:
    """Whether the settings open one; one that a worker can make does not count."""
    lasting = (path for path in asked if not folders.is_below(path.parent, writable))
    return any(path.is_socket() for path in lasting)


def _located(command: Sequence[str], env: Mapping[str, str]) -> Sequence[str]:
    from goent.proc.programs import located  # noqa: PLC0415

    return [os.fsdecode(word) for word in located(command, env)]


def _real_shell(environ: Mapping[str, str]) -> Path:
    wanted = Path(environ.get("SHELL", ""))
    if wanted.name in SHELLS and wanted.is_absolute() and os.access(wanted, os.X_OK):
        return wanted
    return next(
        (path for path in map(Path, ("/bin/bash", "/usr/bin/bash")) if path.exists()),
        Path("/bin/sh"),
    )


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
