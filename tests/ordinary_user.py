"""Runs a test as an ordinary user, also where the suite runs as root.

Secrecy means nothing to root, who reads every process. `@pytest.mark.ordinary_user` runs the test
again in a pytest of its own, under a spare user id, with folders that are its own. Python and the
checkout may lie in a folder that is root's alone, such as /root: in a mount namespace of the test's
own such a folder is replaced by one that lets through, with the same things in it.

As a program: `ordinary_user.py COMMAND...` becomes the command, as that user.
"""

import ctypes
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

SPARE = 64321  # nobody's, on any machine we know
CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
CHECKOUT = Path(__file__).parent.parent


def run_again(nodeid: str, seconds: float) -> str | None:
    """What the test said if it failed; None if it passed."""
    folder = Path(mkdtemp(prefix="goent-user-", dir="/tmp"))  # short, for sockets are in it
    os.chown(folder, SPARE, SPARE)
    folder.chmod(0o700)
    command = [sys.executable, __file__, sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-p", "no:xdist", "-q", "--no-header", f"--basetemp={folder}/t", nodeid]
    env = {
        **{
            name: os.environ[name]
            for name in ("PATH", "LANG", "GOENT_OPENCODE")
            if name in os.environ
        },
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=env,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return None if done.returncode == 0 and "1 passed" in done.stdout else done.stdout + done.stderr


def become(command: list[str]) -> None:
    closed = {folder for path in _needed() for folder in path.parents if not _lets_through(folder)}
    if closed:
        _checked(_libc().unshare(CLONE_NEWNS), "unshare")
        _checked(_libc().mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
    for folder in sorted(closed):
        _open_up(folder)
    here = Path.cwd()
    os.setgroups([])
    os.setgid(SPARE)
    os.setuid(SPARE)
    os.chdir(here)
    os.execv(command[0], command)


def _needed() -> list[Path]:
    opencode = os.environ.get("GOENT_OPENCODE")
    return [CHECKOUT / "x", Path(sys.base_prefix) / "x", *([Path(opencode)] if opencode else [])]


def _lets_through(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _open_up(folder: Path) -> None:
    """Cover it with one of everybody's, in which everything is bound again."""
    handle = os.open(folder, os.O_PATH)
    names = [path.name for path in folder.iterdir()]
    _checked(_libc().mount(b"tmpfs", bytes(folder), b"tmpfs", 0, b"mode=755"), "mount tmpfs")
    for name in names:
        source, target = Path(f"/proc/self/fd/{handle}", name), folder / name
        if source.is_dir():
            target.mkdir()
        elif source.is_file():
            target.touch()
        else:
            continue
        _libc().mount(bytes(source), bytes(target), None, MS_BIND | MS_REC, None)
    os.close(handle)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    become(sys.argv[1:])
