"""What every driver is given: settings, environment, state folder and sandbox."""

from collections.abc import Callable, Mapping
from pathlib import Path

from goent.domain.errors import RequestError
from goent.domain.ports import WorkerPasses, WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import Value
from goent.proc.programs import safe_path
from goent.sandbox.process_sandbox import ProcessSandbox

PRIVATE_PREFIXES = (
    "GOENT_",
    "OPENCODE",
)  # ours, and those that another OpenCode sets for its children
USER_VARIABLES = frozenset({"OPENCODE_API_KEY", "OPENCODE_CONFIG_DIR"})  # of OpenCode's own login
HOME_FOLDERS = {
    "HOME": ".",
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


class NoWorkerPasses:
    """The port `WorkerPasses` without a daemon."""

    def environment(self, worker: str) -> Mapping[str, str]:
        return {}


class DriverContext(Value, frozen=True, kw_only=True):
    """What every driver gets; settings and environment may change at any time."""

    settings: Callable[[], Settings]
    environ: Callable[[], Mapping[str, str]]
    state_dir: Path
    passes: WorkerPasses = NoWorkerPasses()

    @property
    def sandbox(self) -> ProcessSandbox:
        """The sandbox of its processes."""
        return ProcessSandbox(
            settings=lambda: self.settings().sandbox, environ=self.environ, state=self.state_dir
        )


def public_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Our environment without keys, marks and internals, for a worker and its commands."""
    secret = frozenset(settings.key_names)
    public = {
        name: value
        for name, value in environ.items()
        if name not in secret and (name in USER_VARIABLES or not name.startswith(PRIVATE_PREFIXES))
    }
    # With `.` on its PATH, a worker would run programs of the repository that it works in.
    return {**public, "PATH": safe_path(public["PATH"])} if "PATH" in public else public


def hermetic_folders(home: Path) -> dict[str, str]:
    """The variables that keep all of a process's own files below `home`."""
    return {name: str(home / folder) for name, folder in HOME_FOLDERS.items()}


def check_directory(spec: WorkerSpec) -> None:
    """Raises `RequestError` if the worker's directory is missing."""
    if not spec.cwd.is_dir():
        raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
