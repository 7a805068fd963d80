"""What does an OpenCode process inherit, and what is kept from it?"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import msgspec

from goent.domain.errors import ConfigError
from goent.domain.ports import WorkerPasses
from goent.domain.sandbox import Start
from goent.domain.settings import Settings, Standby
from goent.domain.types import Value
from goent.drivers.environment import (
    OWN,
    WithoutPasses,
    hermetic_folders,
    public_environment,
)
from goent.drivers.opencode.catalogue import Catalogue
from goent.drivers.opencode.content import Content
from goent.project import home_dir
from goent.sandbox.sandbox import Agent, Sandbox

QUIET = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH")
HERMETIC = (
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_SHARE",
)
QUIET_GIT = {"core.fsmonitor": "false", "gc.auto": "0", "maintenance.auto": "false"}
# OpenCode runs on JavaScriptCore, which by itself lets its heap double before it collects garbage
# on any large machine. Told of a small one, it collects earlier; this is no limit.
SMALL_HEAP = {"BUN_JSC_forceRAMSize": "1000000000"}
PLUGIN = "@opencode-ai/plugin"  # what OpenCode installs for itself
_IGNORED = (
    "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore"  # as OpenCode has it
)


class Launch(Value, frozen=True, kw_only=True):
    """How one OpenCode process is started; a port of 0 is chosen at the last moment.

    `hostname`, `port` and `arguments` are for `opencode serve`. In its sandbox the process can write below
    `roots`, read what is `shown` to it, and reach its models at `gate_port`.
    """

    program: Path
    cwd: Path
    env: Mapping[str, str]
    password: str
    token: str
    fingerprint: str
    start_timeout: float
    sandbox: Sandbox
    passes: WorkerPasses = WithoutPasses()
    roots: tuple[Path, ...] = ()
    gate_port: int | None = None
    shown: tuple[Path, ...] = ()
    standby: Standby = "auto"
    catalogue: Catalogue | None = None
    hostname: str = "127.0.0.1"
    port: int = 0
    arguments: tuple[str, ...] = ()

    @property
    def database(self) -> Path:
        return database(self.env)

    def variables(self) -> dict[str, str]:
        """The whole environment but for the mark. Reads files, at a first start large ones."""
        models = self.catalogue.variables(self.program, self.env) if self.catalogue else {}
        return {**self.env, **models, "OPENCODE_SERVER_PASSWORD": self.password}

    def confined(
        self, command: Sequence[str], env: Mapping[str, str], port: int
    ) -> AbstractAsyncContextManager[Start]:
        """How to start the process inside its sandbox. It listens on the port, and calls itself there."""
        return self.sandbox.agent(
            Agent(
                command=tuple(command),
                env=env,
                roots=self.roots,
                own=own_folders(env),
                shown=(*self.shown, *settings_folders(env)),
                ports=(port, self.gate_port) if self.gate_port else (),
            )
        )

    def shell_variables(self, worker: str, cwd: Path) -> dict[str, str]:
        """What confines a command of the process to the folder that its worker works in."""
        return {**self.passes.environment(worker), **self.sandbox.shell_variables(cwd, self.env)}

    def hint(self, cwd: Path, output: str) -> str:
        """What to say after the words of a command that failed; nothing if its sandbox had no part."""
        return self.sandbox.hint_for(cwd, output, self.env)


def own_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Where OpenCode keeps its sessions, cache and logs."""
    home = home_dir(env)
    bases = (
        env.get("XDG_DATA_HOME") or f"{home}/.local/share",
        env.get("XDG_CACHE_HOME") or f"{home}/.cache",
        env.get("XDG_STATE_HOME") or f"{home}/.local/state",
    )
    return tuple(Path(base, "opencode") for base in bases)


def settings_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the user's settings, plugins and agents for OpenCode are, and its program by some installers.

    Every OpenCode runs what lies there, so those of workers only read it. It does not start where it
    cannot write its `.gitignore`, and asks for no more once that is there.
    """
    home = home_dir(env)
    usual = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "opencode")
    with suppress(OSError):  # it may belong to a system that is read only
        usual.mkdir(parents=True, exist_ok=True)
    folders = [path for path in (usual, home / ".opencode") if path.is_dir()]
    for folder in folders:
        with suppress(OSError), (folder / ".gitignore").open("x") as file:  # most often it is there
            file.write(_IGNORED)
    return tuple(folders)


def database(env: Mapping[str, str]) -> Path:
    """What the first process of a data folder makes, and no two can make at a time."""
    data = env.get("XDG_DATA_HOME") or f"{env.get('HOME', '')}/.local/share"
    return Path(data, "opencode", "opencode.db")


def worker_environment(
    settings: Settings, environ: Mapping[str, str], content: Content, *, cwd: Path, home: Path
) -> dict[str, str]:
    """The variables of one process, the password apart; `home` is where a hermetic one lives."""
    env = SMALL_HEAP | public_environment(settings, environ)
    env |= dict.fromkeys(QUIET, "1")
    env["PWD"] = str(cwd)  # OpenCode believes it more than its working directory
    env |= _quiet_git(env)
    env["OPENCODE_CONFIG_CONTENT"] = msgspec.json.encode(content).decode()
    if config := settings.opencode.config_path:
        if (
            not config.is_file()
        ):  # OpenCode would go on without it, and then know none of the models
            raise ConfigError(
                f"OpenCode's configuration {str(config)!r} does not exist any more: "
                "put it back, or correct opencode.config_path"
            )
        env["OPENCODE_CONFIG"] = str(config)
    if settings.opencode.profile == "hermetic":
        env |= dict.fromkeys(HERMETIC, "1")
        env |= hermetic_folders(home)
        env = {name: value for name, value in env.items() if name not in OWN}
    elif not settings.opencode.project_config:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    return env


def _quiet_git(env: Mapping[str, str]) -> dict[str, str]:
    """More settings for git, which OpenCode runs: a repository's monitor and hooks are programs."""
    given = env.get("GIT_CONFIG_COUNT", "0")
    count = int(given) if given.isdecimal() else 0
    told = {"GIT_CONFIG_COUNT": str(count + len(QUIET_GIT))}
    for number, (key, value) in enumerate(QUIET_GIT.items(), count):
        told |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return told


def with_program(env: Mapping[str, str], program: Path | None) -> dict[str, str]:
    """The same with the program's folder at the end of the PATH."""
    if program is None:
        return dict(env)
    folders = [folder for folder in env.get("PATH", "").split(":") if folder]
    return {**env, "PATH": ":".join(dict.fromkeys([*folders, str(program.parent)]))}


def pretend_installed(config: Path) -> None:
    """Keep OpenCode from npm: at every start it installs `PLUGIN` there, unless these say it has.

    The installation runs in the background and takes a whole core for half a minute.
    """
    (config / "node_modules").mkdir(parents=True, exist_ok=True)
    lock = {"packages": {"": {"dependencies": {PLUGIN: "*"}}}}
    (config / "package-lock.json").write_bytes(msgspec.json.encode(lock))
