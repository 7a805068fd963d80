"""Prepares the launch of an OpenCode process: environment, configuration, folders, trust.

The generated configuration with the gate's token in it, the environment without keys, the program.
"""

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
# OpenCode runs on JavaScriptCore, which by itself lets its heap double before it collects garbage
# on any large machine. Told of a small one, it collects earlier; this is no limit.
SMALL_HEAP = {"BUN_JSC_forceRAMSize": "1000000000"}
NPM_PLUGIN = "@opencode-ai/plugin"  # what OpenCode installs for itself


class OpenCodeLaunch(Value, frozen=True, kw_only=True):
    """How one OpenCode process is started; a port of 0 is chosen at the last moment.

    `hostname` and `port` are for `opencode serve`. In its sandbox the process can write below
    `roots`, read what is `shown` to it, and reach its models at `gate_port`.
    """

    program: Path
    cwd: Path
    env: Mapping[str, str]
    password: str
    token: str
    fingerprint: str
    start_timeout: float
    sandbox: ProcessSandbox
    passes: WorkerPasses = NoWorkerPasses()
    roots: tuple[Path, ...] = ()
    gate_port: int | None = None
    shown: tuple[Path, ...] = ()
    standby: StandbyMode = "auto"
    catalogue: BundledModels | None = None
    hostname: str = "127.0.0.1"
    port: int = 0
    arguments: tuple[str, ...] = ()

    @property
    def database(self) -> Path:
        return database_path(self.env)

    def variables(self) -> dict[str, str]:
        """The whole environment but for the mark. Reads files, at a first start large ones."""
        models = self.catalogue.variables(self.program, self.env) if self.catalogue else {}
        return {**self.env, **models, "OPENCODE_SERVER_PASSWORD": self.password}

    def confined(
        self, command: Sequence[str], env: Mapping[str, str], port: int
    ) -> AbstractAsyncContextManager[ConfinedCommand]:
        """How to start the process inside its sandbox. It listens on the port, and calls itself there."""
        return self.sandbox.agent(
            SandboxedAgent(
                command=tuple(command),
                env=env,
                roots=self.roots,
                data_folders=opencode_data_folders(env),
                readable=(*self.shown, *opencode_settings_folders(env)),
                ports=(port, self.gate_port) if self.gate_port else (),
            )
        )

    def shell_variables(self, worker: str, cwd: Path) -> dict[str, str]:
        """What confines a command of the process to the folder that its worker works in."""
        return {**self.passes.environment(worker), **self.sandbox.shell_variables(cwd, self.env)}

    def hint(self, cwd: Path, output: str) -> str:
        """What to say after the words of a command that failed; nothing if its sandbox had no part."""
        return self.sandbox.hint_for(cwd, output, self.env)


def database_path(env: Mapping[str, str]) -> Path:
    """What the first process of a data folder makes, and no two can make at a time."""
    data = env.get("XDG_DATA_HOME") or f"{env.get('HOME', '')}/.local/share"
    return Path(data, "opencode", "opencode.db")


def overlay_environment(
    settings: Settings, environ: Mapping[str, str], content: ConfigOverlay, *, cwd: Path, home: Path
) -> dict[str, str]:
    """The variables of one process, the password apart; `home` is where a hermetic one lives."""
    env = SMALL_HEAP | public_environment(settings, environ)
    env |= dict.fromkeys(QUIET_VARIABLES, "1")
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
        env |= dict.fromkeys(HERMETIC_VARIABLES, "1")
        env |= hermetic_folders(home)
        env = {name: value for name, value in env.items() if name not in USER_VARIABLES}
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


def with_program_folder(env: Mapping[str, str], program: Path | None) -> dict[str, str]:
    """The same with the program's folder at the end of the PATH."""
    if program is None:
        return dict(env)
    folders = [folder for folder in env.get("PATH", "").split(":") if folder]
    return {**env, "PATH": ":".join(dict.fromkeys([*folders, str(program.parent)]))}


def fake_plugin_install(config: Path) -> None:
    """Keep OpenCode from npm: at every start it installs `PLUGIN` there, unless these say it has.

    The installation runs in the background and takes a whole core for half a minute.
    """
    (config / "node_modules").mkdir(parents=True, exist_ok=True)
    lock = {"packages": {"": {"dependencies": {NPM_PLUGIN: "*"}}}}
    (config / "package-lock.json").write_bytes(msgspec.json.encode(lock))


def gated_overlay(context: DriverContext, gate: Gate, *, token: str) -> ConfigOverlay:
    """The configuration by which every model whose key we hold is called through the gate.

    Commands run by a shell that confines them.
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
    """Where the gate listens."""
    return urlsplit(gate.guard_url).port


def shared_roots(context: DriverContext) -> tuple[Path, ...]:
    """Where the workers of a shared process work: in the project, or in folders of their own."""
    own = tuple(context.state_dir / name for name in WORKSPACE_FOLDERS.values())
    for folder in own:
        folder.mkdir(0o700, parents=True, exist_ok=True)
    project = context.settings().project
    return (*dict.fromkeys((project, *context.sandbox.writable_folders(project))), *own)


def start_folder(context: DriverContext) -> Path:
    """Where every OpenCode process of ours starts, whatever directory it is to work in.

    Bun, which OpenCode is built on, obeys the nearest `tsconfig.json` from the folder that a process
    is in upwards: its `paths` name another file for whatever OpenCode imports, our guard among it.
    No switch turns that off. So a process is never in somebody's repository, and finds ours first.
    """
    folder = context.state_dir / "opencode-start"
    folder.mkdir(0o700, parents=True, exist_ok=True)
    nearest = folder / "tsconfig.json"
    if not nearest.exists():
        nearest.write_text("{}\n")
    return folder


def check_trusted(context: DriverContext, *folders: Path) -> None:
    """Raise `NotTrusted` if an OpenCode that works there would run what nobody has allowed.

    That is also what its git would run: OpenCode asks it about every folder. Looked at each time: a worker may have put it there since.
    """
    settings = context.settings()
    whole = settings.opencode.project_config and settings.opencode.profile == "user"
    for folder in dict.fromkeys((*folders, start_folder(context))):
        check_opencode_trust(
            folder, settings.project, context.environ(), whole=whole, more=fetch_acts(folder)
        )


def needed_models(context: DriverContext, content: ConfigOverlay) -> BundledModels:
    """What a process with this configuration has to know of the world's models."""
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
    """What the project tells every agent, where OpenCode is kept from reading it by itself."""
    if settings.opencode.project_config and settings.opencode.profile == "user":
        return ()
    return find_instructions((cwd, settings.project), project=settings.project).files[:1]
