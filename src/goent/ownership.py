"""Whether a file or folder is the user's own, or whether somebody else could have prepared it.

As git asks before it believes a repository: what belongs to another user is not followed, unless the
user named the folder as `safe.directory` in their own global git configuration. Standard library only.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

ROOT = 0
PATIENCE = 10.0  # seconds for git to say which folders are safe


class UnsafeFolder(OSError):
    """A folder that we cannot use, or that others could have prepared for us; with the remedy."""


class Found:
    """What the system says of a file: whose it is, and who may write it. For `os.stat_result`."""

    def __init__(self, *, uid: int, gid: int, mode: int) -> None:
        self.st_uid, self.st_gid, self.st_mode = uid, gid, mode


Owned = os.stat_result | Found


def own_users(euid: int, environ: Mapping[str, str]) -> frozenset[int]:
    """Whose files are the user's own; for root by way of sudo, also those of who asked for it."""
    asked = environ.get("SUDO_UID", "")
    if euid == ROOT and re.fullmatch(r"[0-9]{1,10}", asked):
        return frozenset({euid, int(asked)})
    return frozenset({euid})


def whose(found: Owned, users: Collection[int]) -> str:
    """Whose it is, in words, if it is not the user's own; else nothing."""
    return "" if found.st_uid in users else f"belongs to {_user(found.st_uid)}"


def written_by(found: Owned, groups: Collection[int]) -> str:
    """Who else may write it, in words; nothing if that is nobody. A link says nothing of itself."""
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return ""
    if mode & stat.S_IWOTH:
        return f"can be written by everybody (mode {mode & 0o7777:o})"
    if mode & stat.S_IWGRP and found.st_gid not in groups:
        return f"can be written by the group {found.st_gid}, which is not yours (mode {mode & 0o7777:o})"
    return ""


def check_own(path: "str | os.PathLike[str]", project: "str | os.PathLike[str]") -> None:
    """Raise `UnsafeFolder` if the path is there and belongs to somebody else."""
    users = own_users(os.geteuid(), os.environ)
    for found in seen_at(path):
        if (words := whose(found, users)) and not is_safe(project):
            raise foreign(path, words, project)


def check_unshared(path: "str | os.PathLike[str]", project: "str | os.PathLike[str]") -> None:
    """Raise `UnsafeFolder` if the path is there and others own it or can write it."""
    check_own(path, project)
    groups = {os.getegid(), *os.getgroups()}
    for found in seen_at(path):
        if (words := written_by(found, groups)) and not is_safe(project):
            name = os.fspath(path)
            raise UnsafeFolder(
                f"{name!r} {words}, so go-ent does not follow it: run `chmod go-w {_quoted(name)}`, "
                f"or, if you trust everybody who can: {_remedy(project)}"
            )


def standing(path: "str | os.PathLike[str]") -> tuple[object, ...]:
    """Something that changes when `check_unshared` may say something else."""
    found = seen_at(path)
    users, groups = own_users(os.geteuid(), os.environ), {os.getegid(), *os.getgroups()}
    asked = any(whose(each, users) or written_by(each, groups) for each in found)
    told = tuple((each.st_uid, each.st_gid, each.st_mode) for each in found)
    return (*told, _state()) if asked else told


def foreign(
    path: "str | os.PathLike[str]", words: str, project: "str | os.PathLike[str]"
) -> UnsafeFolder:
    """What to say of somebody else's file or folder."""
    return UnsafeFolder(
        f"{os.fspath(path)!r} {words}, not to you ({_user(os.geteuid())}), so go-ent does not follow "
        f"what is in it: work in a folder of your own, or, if you trust its owner: {_remedy(project)}"
    )


def is_safe(project: "str | os.PathLike[str]") -> bool:
    """Whether the user named the folder in their own git configuration. Asks git."""
    real = os.path.realpath(project)
    return names_folder(real, _safe_directories(_state()))


def names_folder(folder: str, listed: Iterable[str]) -> bool:
    """As git reads `safe.directory`: the last word counts, and an empty one takes all back."""
    safe = False
    for each in listed:
        if not each:
            safe = False
        elif each == "*" or os.path.normpath(each) == folder:
            safe = True
        else:
            safe = safe or (each.endswith("/*") and folder.startswith(each[:-1]))
    return safe


@lru_cache(maxsize=4)
def _safe_directories(state: tuple[object, ...]) -> tuple[str, ...]:  # noqa: ARG001 (when to ask anew)
    import shutil  # noqa: PLC0415 (hardly ever, and what must start fast imports this)
    import subprocess  # noqa: PLC0415, TID251 (the same; one short question to git)

    path = os.pathsep.join(
        each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each[:1] == "/"
    )
    git = shutil.which("git", path=path)
    if git is None:
        return ()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name == "GIT_CONFIG_GLOBAL"
    }
    command = (git, "config", "--global", "--includes", "--type=path", "-z")
    try:
        said = subprocess.run(  # (reads the user's own file, in no repository)
            (*command, "--get-all", "safe.directory"),
            cwd="/",
            env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(os.fsdecode(said.stdout).split("\0")[:-1])


def _state() -> tuple[object, ...]:
    """What the answer depends on: when it changes, git is asked again."""
    home = os.environ.get("HOME", "")
    other = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    given = os.environ.get("GIT_CONFIG_GLOBAL")
    paths = (given,) if given else (f"{home}/.gitconfig", f"{other}/git/config")
    return (os.environ.get("PATH"), *((path, _stamp(path)) for path in paths))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (no Path is needed)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def seen_at(path: "str | os.PathLike[str]") -> tuple[os.stat_result, ...]:
    """What is there; of a link both itself and what it leads to. Nothing if nothing is."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    if not stat.S_ISLNK(found.st_mode):
        return (found,)
    with suppress(OSError):
        return found, os.stat(path)  # noqa: PTH116 (no Path is needed)
    return (found,)


def _remedy(project: "str | os.PathLike[str]") -> str:
    return f"git config --global --add safe.directory {_quoted(os.path.realpath(project))}"


def _quoted(path: str) -> str:
    """As a shell takes it."""
    import shlex  # noqa: PLC0415 (for an error alone)

    return shlex.quote(path)


def _user(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415 (for an error alone)

        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except (ImportError, KeyError):
        return f"user {uid}"
