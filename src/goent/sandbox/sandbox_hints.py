"""Explains, from a failed command's output, what the sandbox refused and which setting allows it."""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from goent.domain.sandbox_port import SandboxSettings
from goent.domain.types import Value
from goent.sandbox.confinement import Confinement
from goent.sandbox.sandbox_paths import is_below, is_file, is_folder
from goent.system.project_folders import config_dir, home_dir, state_path

OUTPUT_CHARS = 4000  # at the end of the output, where errors are
DOCKER = Path("/var/run/docker.sock")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (it is named, not written to)
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 (the same)
IN_USER_SETTINGS = "in ~/.config/go-ent/config.yaml"

_REFUSED = re.compile(
    r"permission denied|read-only file system|operation not permitted|\b(eacces|erofs|eperm|ebusy)\b"
    r"|device or resource busy|error writing to the directory|unable to create temporary object directory",
    re.IGNORECASE,
)
_DOCKER = re.compile(r"docker daemon|docker\.sock", re.IGNORECASE)
_SSH = re.compile(
    r"authentication agent|error connecting to agent|permission denied \(publickey", re.IGNORECASE
)
_PRIVILEGE = re.compile(
    r"no new privileges|effective uid is not 0|must be setuid root", re.IGNORECASE
)
_SIGNAL = re.compile(r"\bp?kill(all)?: .*operation not permitted", re.IGNORECASE)
_NETWORK = re.compile(
    r"could not resolve host|name resolution|network is unreachable|enotfound|eai_again|connection refused",
    re.IGNORECASE,
)
_MOVE = re.compile(r"invalid cross-device link|\bexdev\b", re.IGNORECASE)
_SHARED = re.compile(r"/psm_|shm_open|semlock|/dev/shm", re.IGNORECASE)
_GIT = re.compile(r"\.git/(config|hooks|info)\b|\.git/modules/|config-file")
_SHELL_PREFIX = re.compile(r"^/\S+: (?:line )?\d+: ")  # a shell begins messages with its own name
_NAMES_FILE = re.compile(
    r"(: line \d+|: \d+: cannot create|cannot touch)"
)  # creating a file failed
_NOT_FOUND = re.compile(r"no such file or directory|enoent|not found", re.IGNORECASE)
# What npm writes below its errors.
_NAMES_FOLDER = re.compile(r"\b(path|directory|folder|cache|mkdir)\b", re.IGNORECASE)
_QUOTES = "'\"`\u2018\u2019"
_PATH = re.compile(
    rf"[{_QUOTES}](/[^{_QUOTES}\n]+)[{_QUOTES}]|(?<![\w.~:/])(/[^\s{_QUOTES}:,;()<>\[\]]+)"
)

# Below a home folder: folders that contain those of programs; and folders that a hint never opens.
_PARENT_FOLDERS = (
    *(".cache", ".config", ".local", ".local/share", ".local/state", "Library", "Library/Caches"),
)
_SENSITIVE = (".ssh", ".gnupg", ".aws", ".kube", ".docker", ".netrc", ".config/git", ".gitconfig")
_SYSTEM = (
    *(
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/lib",
        "/proc",
        "/run",
        "/sbin",
        "/sys",
        "/usr",
        "/var/lib",
    ),
)
_SENSITIVE_ENDINGS = ("rc", "profile", "env", "logout", "history")
# Of these folders only parts are opened: programs and a login lie beside them.
_PARTS_TO_OPEN = {".cargo": (".cargo/registry", ".cargo/git")}


class HintContext(Value, frozen=True, kw_only=True):
    """The limits of a command, and the settings they come from.

    `home` is the command's own; folders opened below the user's home are opened below it too.
    """

    confinement: Confinement
    settings: SandboxSettings
    environ: Mapping[str, str]
    home: Path


def explain_refusal(sought: HintContext, output: str) -> str:
    """One line for a command that failed with this output; empty if the sandbox was not the cause."""
    text = output[-OUTPUT_CHARS:]
    found = next((hint for each in _HINTS if (hint := each(sought, text))), "")
    return f"(go-ent's sandbox: {found})" if found else ""


def is_refusal(text: str) -> bool:
    """Whether the output of a failed command suggests that its sandbox was the cause."""
    return bool(_REFUSED.search(text[-OUTPUT_CHARS:]))


def _docker_hint(sought: HintContext, text: str) -> str:
    path = _socket_path(sought.environ.get("DOCKER_HOST", "")) or DOCKER
    if not _DOCKER.search(text) or path in sought.settings.writable:
        return ""
    entry = _setting_line(sought, path)
    return (
        "Docker's socket is hidden, because whoever can reach it can do anything on this machine as root. "
        f"To allow it anyway: {entry}"
    )


def _ssh_hint(sought: HintContext, text: str) -> str:
    agent = sought.environ.get("SSH_AUTH_SOCK", "")
    if not agent or not _SSH.search(text) or Path(agent) in sought.settings.writable:
        return ""
    return f"the SSH agent is hidden. To allow it: {_setting_line(sought, Path(agent))}"


def _privilege_hint(_: HintContext, text: str) -> str:
    if not _PRIVILEGE.search(text):
        return ""
    return "commands cannot gain privileges, by sudo or otherwise; run it yourself, or see docs/sandbox.md"


def _signal_hint(_: HintContext, text: str) -> str:
    if not _SIGNAL.search(text):
        return ""
    return "a command can signal only what it started itself; other processes end with their worker"


def _network_hint(sought: HintContext, text: str) -> str:
    network = sought.settings.network
    if network == "all":
        return ""
    allow = f"To allow it: `sandbox: {{network: all}}` {IN_USER_SETTINGS}"
    if sought.confinement.level == "namespace" and _MOVE.search(text):
        return f"with `network: {network}`, files cannot be moved between folders. {allow}"
    closed = _NETWORK.search(text) or ("socket" in text and _REFUSED.search(text))
    return f"commands have no network (`network: {network}`). {allow}" if closed else ""


def _shared_memory_hint(sought: HintContext, text: str) -> str:
    allowed = is_below(SHARED_MEMORY, sought.confinement.writable)
    if sought.confinement.level != "landlock" or allowed:
        return ""
    if not _SHARED.search(text) or not _REFUSED.search(text):
        return ""
    return f"commands have no shared memory. To allow it: {_setting_line(sought, SHARED_MEMORY)}"


def _git_hint(_: HintContext, text: str) -> str:
    if not _REFUSED.search(text) or not _GIT.search(text):
        return ""
    return (
        "commands cannot write git's settings and hooks, because git runs programs from them. Run it yourself, or "
        f"add the repository's `.git` to `sandbox.writable` {IN_USER_SETTINGS}"
    )


def _folder_hint(sought: HintContext, text: str) -> str:
    """A hint for the path that could not be written or seen."""
    lines = text.splitlines()
    refused = [line for line in lines if _REFUSED.search(line)]
    if refused:
        near = [line for line in lines if _NAMES_FOLDER.search(line)]
        closed = (path for line in (*refused, *near) for path in _closed_paths(sought, line))
        path = next(closed, None)
        return _write_hint(sought, path) if path else ""
    missing = (
        [line for line in lines if _NOT_FOUND.search(line)] if sought.settings.read != "all" else []
    )
    seen = sought.confinement.readable or ()
    hidden = (
        path for line in missing for path in _named_paths(sought, line) if not is_below(path, seen)
    )
    path = next(hidden, None)
    if path is None or _is_goent_path(sought, path):
        return ""
    entry = f"`sandbox: {{readable: [{_display_path(sought, path)}]}}` {IN_USER_SETTINGS}"
    return f"with `read: listed` commands cannot see {_display_path(sought, path)}. To show it: {entry}"


def _general_hint(sought: HintContext, text: str) -> str:
    if not _REFUSED.search(text):
        return ""
    below = ", ".join(map(str, sought.confinement.writable[:1]))
    places = f"below {below} and in temporary folders" if below else "in temporary folders"
    return f"commands can write only {places}. To allow more, add the folder to `sandbox.writable` {IN_USER_SETTINGS}"


_HINTS: tuple[Callable[[HintContext, str], str], ...] = (
    *(_docker_hint, _ssh_hint, _privilege_hint, _signal_hint, _network_hint),
    *(_shared_memory_hint, _git_hint, _folder_hint, _general_hint),
)


def _named_paths(sought: HintContext, line: str) -> Iterator[Path]:
    for quoted, plain in _PATH.findall(line):
        path, users = Path((quoted or plain).rstrip(".")), home_dir(sought.environ)
        homes = (sought.home, users.resolve())  # the user's may be a link
        home = next((each for each in homes if path.is_relative_to(each)), None)
        yield users / path.relative_to(home) if home else path


def _closed_paths(sought: HintContext, line: str) -> Iterator[Path]:
    """Paths in a line that the sandbox closes and that could be opened; for a file, its folder."""
    writable = sought.confinement.writable
    names_file = bool(_NAMES_FILE.search(line))
    for named in _named_paths(sought, _SHELL_PREFIX.sub("", line)):
        path = named.parent if names_file else named
        if (
            not is_below(path, writable)
            and not _is_goent_path(sought, path)
            and _folders_to_open(sought, path)
        ):
            yield path


def _write_hint(sought: HintContext, path: Path) -> str:
    entries = [
        entry
        for entry in _folders_to_open(sought, path)
        if entry not in sought.confinement.writable
    ]
    if not entries:
        return ""
    shown, other = _display_path(sought, path), ""
    if is_below(path, map(Path, TEMPORARY)):
        other = ", but can write in $TMPDIR"
    return f"commands cannot write {shown}{other}. To allow it: {_setting_line(sought, *entries)}"


def _folders_to_open(sought: HintContext, path: Path) -> tuple[Path, ...]:
    """The folders to open for a path; none if a person should think first."""
    home = home_dir(sought.environ)
    if not path.is_relative_to(home):
        folder = path
        while not is_folder(folder):
            folder = folder.parent
        is_systems = folder in home.parents or is_below(folder, map(Path, _SYSTEM))
        is_open = os.access(folder, os.W_OK)  # otherwise the system refused it, not the sandbox
        return (folder,) if is_open and not is_systems else ()
    parts = path.relative_to(home).parts
    if parts == (".cache",):
        return (path,)
    taken = 1
    while "/".join(parts[:taken]) in _PARENT_FOLDERS:
        taken += 1
    name = "/".join(parts[:taken])
    lies = home / name
    if len(parts) < taken or _is_sensitive(name) or is_file(lies):
        return ()
    return tuple(home / each for each in _PARTS_TO_OPEN.get(name, (name,)))


def _is_sensitive(name: str) -> bool:
    return name.startswith(_SENSITIVE) or (name[:1] == "." and name.endswith(_SENSITIVE_ENDINGS))


def _is_goent_path(sought: HintContext, path: Path) -> bool:
    return is_below(path, (state_path(sought.environ), config_dir(sought.environ)))


def _setting_line(sought: HintContext, *entries: Path) -> str:
    """The line for the settings file, or what to add to an existing one."""
    words = ", ".join(_display_path(sought, path) for path in entries)
    if sought.settings.writable:
        return f"add {words} to `sandbox.writable` {IN_USER_SETTINGS}"
    return f"`sandbox: {{writable: [{words}]}}` {IN_USER_SETTINGS}"


def _display_path(sought: HintContext, path: Path) -> str:
    home = home_dir(sought.environ)
    text = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    return f'"{text}"' if re.search(r"[\s,:#{}\[\]]", text) else text


def _socket_path(address: str) -> Path | None:
    return Path(address.removeprefix("unix://")) if address.startswith("unix:///") else None
