"""How do we come by a peer that is no dependency of anybody's here? Once, in `.bench` of the checkout."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

INSTALLED = Path(__file__).resolve().parent.parent / ".bench"
INSTALL_S = 900.0


class NotInstalled(Exception):
    """The message is the installer's."""


def install(name: str, home: Path, commands: Sequence[Sequence[str]]) -> None:
    """Raises `NotInstalled`, so that a measure without its peer can say so."""
    ready = home / "ready"
    if ready.exists():
        return
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    sys.stderr.write(f"(installing {name} into {INSTALLED.name}/, once) ")
    sys.stderr.flush()
    for command in commands:
        _done(command, home)
    ready.touch()


def _done(command: Sequence[str], home: Path) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            cwd=home,
            timeout=INSTALL_S,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    except subprocess.CalledProcessError as error:
        lines: list[str] = error.stderr.decode(errors="replace").strip().splitlines()
        raise NotInstalled(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from error
