"""What every driver is given: settings, environment, state folder and sandbox."""

from collections.abc import Callable, Mapping
from pathlib import Path

from goent.domain.errors import RequestError
from goent.domain.ports import WorkerPasses, WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import Value
from goent.proc.programs import safe_path
from goent.sandbox.process_sandbox import ProcessSandbox

PRIVATE_PREFIXES = ("GOENT_", "OPENCODE")  # ours, and what another OpenCode left for its children
USER_VARIABLES = frozenset(
    {"OPENCODE_API_KEY", "OPENCODE_CONFIG_DIR"}
)  # the user's: OpenCode's own login
HOME_FOLDERS = {
    "HOME": ".",
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


class NoWorkerPasses:
    """The port `WorkerPasses` where no daemon could be asked."""

    def environment(self, worker: str) -> Mapping[str, str]:
        return {}


class DriverContext(Value, frozen=True, kw_only=True):
    """What a driver is given by whoever runs it; settings and environment may change any time."""

    settings: Callable[[], Settings]
    environ: Callable[[], Mapping[str, str]]
    state_dir: Path
    passes: WorkerPasses = NoWorkerPasses()

    @property
    def sandbox(self) -> ProcessSandbox:
        """Where its processes run."""
        return ProcessSandbox(
            settings=lambda: self.settings().sandbox, environ=self.environ, state=self.state_dir
        )


def public_environment(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Ours without keys, marks and internals: fit for a worker and for what it runs."""
    secret = frozenset(settings.key_names)
    public = {
        name: value
        for name, value in environ.items()
        if name not in secret and (name in USER_VARIABLES or not name.startswith(PRIVATE_PREFIXES))
    }
    # A worker works in somebody's repository: `.` on its PATH would let that choose its programs.
    return {**public, "PATH": safe_path(public["PATH"])} if "PATH" in public else public


def hermetic_folders(home: Path) -> dict[str, str]:
    """The variables that move all of a process's own files below `home`."""
    return {name: str(home / folder) for name, folder in HOME_FOLDERS.items()}


def check_directory(spec: WorkerSpec) -> None:
    """Raises `RequestError` if the worker's directory is missing."""
    if not spec.cwd.is_dir():
        raise RequestError(f"the directory {str(spec.cwd)!r} does not exist")
