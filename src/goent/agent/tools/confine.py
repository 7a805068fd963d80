"""Run a command that can write only below some folders, by Landlock.

A program of its own, started with `python -I -S`: it puts itself into the ruleset, then becomes the
command. Standard library only, and as little of it as will do: every command pays for its start.
"""

import ctypes
import os
import sys
from collections.abc import Iterable

WRITE = "GOENT_WRITE"  # folders, each hexadecimal, separated by spaces; without it, everywhere
KEEP = "GOENT_KEEP"  # names of variables: of the environment only these are kept, if it is given

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every architecture that has Landlock
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38
_DROP_CAPABILITY = 24
_SEEING_THROUGH = (21, 38)  # CAP_SYS_ADMIN, CAP_PERFMON: by them root reads other processes' memory

_WRITE_FILE = 1 << 1
_REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
_REFER = 1 << 13  # since ABI 2; without it nothing can be moved from one folder to another
_TRUNCATE = 1 << 14  # since ABI 3
_FOR_FILES = _WRITE_FILE | _TRUNCATE


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def abi() -> int:
    """Landlock's version in this kernel; 0 if there is none, or it may not be used."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, _libc().syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION))


def confine(folders: Iterable[bytes]) -> None:
    """Of the calling process and all that it starts. Raises `OSError`."""
    libc = _libc()
    handled = _WRITE_FILE | _REMOVE_AND_MAKE
    version = abi()
    handled |= _REFER if version >= 2 else 0  # noqa: PLR2004 (Landlock's own numbers)
    handled |= _TRUNCATE if version >= 3 else 0  # noqa: PLR2004 (Landlock's own numbers)
    attributes = _Ruleset(handled)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = _checked(libc.syscall(_CREATE, ctypes.byref(attributes), size, 0))
    for folder in folders:
        _allow(libc, ruleset, folder, handled)
    _allow(libc, ruleset, b"/dev", handled & _FOR_FILES)  # what is there, but nothing new
    _checked(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    for capability in _SEEING_THROUGH:
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)  # fails for who never had it
    _checked(libc.syscall(_RESTRICT, ruleset, 0))
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: bytes, access: int) -> None:
    try:
        place = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
    except OSError:
        return  # what is not there cannot be written either
    if not os.path.isdir(path):  # noqa: PTH112 (pathlib would double the start)
        access &= _FOR_FILES
    rule = _PathBeneath(access, place)
    _checked(libc.syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
    os.close(place)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def main(command: list[str]) -> None:
    """Become the command: no input, and errors where the output goes."""
    folders = os.environ.pop(WRITE, None)
    kept = os.environ.pop(KEEP, None)
    environ = dict(os.environ)
    if kept is not None:
        names = frozenset(kept.split())
        environ = {name: value for name, value in environ.items() if name in names}
    try:
        if folders is not None:
            confine(bytes.fromhex(folder) for folder in folders.split())
    except OSError as error:
        sys.exit(f"the command was not run: it cannot be confined: {error}")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(1, 2)
    try:
        os.execve(command[0], command, environ)  # noqa: S606 (the shell that runs the command)
    except OSError as error:
        sys.exit(f"cannot start {command[0]!r}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
