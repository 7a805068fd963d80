"""Prepares the launch of an OpenCode process: environment, configuration, folders, trust."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from goent.agents.driver_context import (
    USER_VARIABLES,
    DriverContext,
    NoWorkerPasses,
    hermetic_folders,
    public_environment,
)
from goent.agents.opencode_program import (
    find_ripgrep,
    opencode_data_folders,
    opencode_settings_folders,
)
from goent.config.project_instructions import find_instructions
from goent.config.trust_survey import check_opencode_trust
from goent.domain.errors import ConfigError
from goent.domain.ports import Gate, WorkerPasses
from goent.domain.sandbox_port import ConfinedCommand
from goent.domain.settings import Settings, StandbyMode
from goent.domain.types import Value
from goent.domain.workspace import WORKSPACE_FOLDERS
from goent.git.repository_config import fetch_acts
from goent.opencode.bundled_models import BundledModels
from goent.opencode.call_guard import GUARD_PLUGIN
from goent.opencode.config_overlay import (
    WARM_PROVIDER,
    ConfigOverlay,
    GuardOptions,
    gated_backends,
    generate_overlay,
)
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent

QUIET_VARIABLES = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH")
HERMETIC_VARIABLES = (
    "OPENCODE_DISABLE_CLAUDE_CODE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_EXTERNAL_SKILLS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_PROJECT_CONFIG",
    "OPENCODE_DISABLE_SHARE",
)
QUIET_GIT = {"core.fsmonitor": "false", "gc.auto": "0", "maintenance.auto": "false"}
# On a large machine JavaScriptCore, which OpenCode runs on, lets its heap double before it collects
# garbage. Believing the machine small, it collects earlier; this is no limit.
SMALL_HEAP = {"BUN_JSC_forceRAMSize": "1000000000"}
NPM_PLUGIN = "@opencode-ai/plugin"  # what OpenCode installs for itself


class ProgramLaunch(Value, frozen=True, kw_only=True):
    """How an OpenCode program is started in its sandbox.

    There it can write below `roots`, read what is `shown`, and reach its models at `gate_port`.
    Without a `catalogue`, it knows every model of the world.
    """

    program: Path
    cwd: Path
    env: Mapping[str, str]
    start_timeout: float
    sandbox: ProcessSandbox
    passes: WorkerPasses = NoWorkerPasses()
    roots: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    gate_port: int | None = None
    catalogue: BundledModels | None = None

    @property
    def database(self) -> Path:
        """The database that the first process of a data folder creates."""
        data = self.env.get("XDG_DATA_HOME") or f"{self.env.get('HOME', '')}/.local/share"
        return Path(data, "opencode", "opencode.db")

    def variables(self) -> dict[str, str]:
        """The whole environment but for the mark. Reads files, large ones at a first start."""
        models = self.catalogue.variables(self.program, self.env) if self.catalogue else {}
        return {**self.env, **models}

    def confined(
        self, command: Sequence[str], env: Mapping[str, str], *ports: int
    ) -> AbstractAsyncContextManager[ConfinedCommand]:
        """The command inside its sandbox, where it may use these ports of its own."""
        return self.sandbox.agent(
            SandboxedAgent(
                command=tuple(command),
                env=env,
                roots=self.roots,
                data_folders=opencode_data_folders(env),
                readable=(*self.shown, *opencode_settings_folders(env)),
                ports=(*ports, self.gate_port) if self.gate_port else (),
            )
        )

    def shell_variables(self, worker: str, cwd: Path) -> dict[str, str]:
        """The variables that confine a command of the process to its worker's folder."""
        return {**self.passes.environment(worker), **self.sandbox.shell_variables(cwd, self.env)}

    def hint(self, cwd: Path, output: str) -> str:
        """An explanation for a failed command; empty if its sandbox was not the cause."""
        return self.sandbox.hint_for(cwd, output, self.env)


class OpenCodeLaunch(ProgramLaunch, frozen=True, kw_only=True):
    """How a process with a server is started; for port 0, a free one is chosen at the last moment.

    `hostname` and `port` are for `opencode serve`.
    """

    password: str
    token: str
    fingerprint: str
    standby: StandbyMode = "auto"
    hostname: str = "127.0.0.1"
    port: int = 0
    arguments: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        return {**super().variables(), "OPENCODE_SERVER_PASSWORD": self.password}


def overlay_environment(
    settings: Settings, environ: Mapping[str, str], content: ConfigOverlay, *, cwd: Path, home: Path
) -> dict[str, str]:
    """The variables of one process, without the password; `home` is that of a hermetic one."""
    env = SMALL_HEAP | public_environment(settings, environ)
    env |= dict.fromkeys(QUIET_VARIABLES, "1")
    env["PWD"] = str(cwd)  # OpenCode believes it more than its working directory
    env |= _quiet_git(env)
    env["OPENCODE_CONFIG_CONTENT"] = msgspec.json.encode(content).decode()
    if config := settings.opencode.config_path:
        if not config.is_file():  # OpenCode would start without it, and know none of the models
            raise ConfigError(
                f"OpenCode's configuration {str(config)!r} does not exist any more: "
                "restore it, or correct opencode.config_path"
            )
        env["OPENCODE_CONFIG"] = str(config)
    if settings.opencode.profile == "hermetic":
        env |= dict.fromkeys(HERMETIC_VARIABLES, "1")
        env |= hermetic_folders(home)
        env = {name: value for name, value in env.items() if name not in USER_VARIABLES}
    elif not settings.opencode.project_config:
        env["OPENCODE_DISABLE_PROJECT_CONFIG"] = "1"
    return env


def _quiet_git(env: Mapping[str, str]) -> dict[str, str]:
    """Settings for the git that OpenCode runs: a repository's monitor and hooks are programs."""
    given = env.get("GIT_CONFIG_COUNT", "0")
    count = int(given) if given.isdecimal() else 0
    added = {"GIT_CONFIG_COUNT": str(count + len(QUIET_GIT))}
    for number, (key, value) in enumerate(QUIET_GIT.items(), count):
        added |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return added


def with_program_folder(env: Mapping[str, str], program: Path | None) -> dict[str, str]:
    """Add the program's folder to the end of the PATH."""
    if program is None:
        return dict(env)
    folders = [folder for folder in env.get("PATH", "").split(":") if folder]
    return {**env, "PATH": ":".join(dict.fromkeys([*folders, str(program.parent)]))}


def fake_plugin_install(config: Path) -> None:
    """Pretend that `NPM_PLUGIN` is installed, which OpenCode otherwise installs at every start.

    The installation takes a whole core in the background for half a minute.
    """
    (config / "node_modules").mkdir(parents=True, exist_ok=True)
    lock = {"packages": {"": {"dependencies": {NPM_PLUGIN: "*"}}}}
    (config / "package-lock.json").write_bytes(msgspec.json.encode(lock))


def gated_overlay(context: DriverContext, gate: Gate, *, token: str) -> ConfigOverlay:
    """The configuration that sends calls of every model whose key we hold through the gate.

    Commands run in a shell that confines them.
    """
    settings, environ = context.settings(), context.environ()
    held = gated_backends(settings, environ)
    addresses = {name: gate.base_url(name) for name in (*held, WARM_PROVIDER)}
    content = generate_overlay(settings, held=held, addresses=addresses, token=token)
    options = GuardOptions(url=gate.guard_url, token=token)
    shell = context.sandbox.shell()
    return replace(
        content, plugin=((GUARD_PLUGIN.as_uri(), options),), shell=str(shell) if shell else UNSET
    )


def gate_port(gate: Gate) -> int | None:
    return urlsplit(gate.guard_url).port


def shared_roots(context: DriverContext) -> tuple[Path, ...]:
    """Where workers of a shared process work: the project, or folders of their own."""
    own = tuple(context.state_dir / name for name in WORKSPACE_FOLDERS.values())
    for folder in own:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    project = context.settings().project
    return (*dict.fromkeys((project, *context.sandbox.writable_folders(project))), *own)


def start_folder(context: DriverContext) -> Path:
    """Where every OpenCode process of ours starts, whatever directory it works in.

    Bun, which OpenCode is built on, obeys the nearest `tsconfig.json` upwards from the folder of its
    process: its `paths` can replace any file that OpenCode imports, our guard included, and no switch
    turns that off. So a process never starts in a repository, and finds our file first.
    """
    folder = context.state_dir / "opencode-start"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    nearest = folder / "tsconfig.json"
    if not nearest.exists():
        nearest.write_text("{}\n")
    return folder


def check_trusted(context: DriverContext, *folders: Path) -> None:
    """Raise `NotTrusted` if an OpenCode working there would run a program that was not allowed.

    This includes what its git would run: OpenCode calls git in every folder. Checked each time,
    because a worker may have added something.
    """
    settings = context.settings()
    whole = settings.opencode.project_config and settings.opencode.profile == "user"
    for folder in dict.fromkeys((*folders, start_folder(context))):
        check_opencode_trust(
            folder, settings.project, context.environ(), whole=whole, more=fetch_acts(folder)
        )


def needed_models(context: DriverContext, content: ConfigOverlay) -> BundledModels:
    """The part of OpenCode's model catalogue that a process with this configuration needs."""
    folder = context.state_dir / "opencode-models"
    return BundledModels(backends=content.enabled_providers, folder=folder)


def process_environment(
    context: DriverContext, content: ConfigOverlay, *, program: Path, cwd: Path
) -> dict[str, str]:
    """All variables of a process that starts in `cwd`; a hermetic one gets its home."""
    settings, environ = context.settings(), context.environ()
    home = context.state_dir / "opencode-home"
    if settings.opencode.profile == "hermetic":
        home.mkdir(0o700, parents=True, exist_ok=True)
        fake_plugin_install(home / ".config" / "opencode")
    env = overlay_environment(settings, environ, content, cwd=cwd, home=home)
    return with_program_folder(env, find_ripgrep(program, environ))


def project_instructions(cwd: Path, settings: Settings) -> Sequence[Path]:
    """The project's instructions for agents, unless OpenCode reads them by itself."""
    if settings.opencode.project_config and settings.opencode.profile == "user":
        return ()
    return find_instructions((cwd, settings.project), project=settings.project).files[:1]
