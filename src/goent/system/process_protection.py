"""Closes this process to the user's other processes, before it holds a key.

A process that is not dumpable shows its environment, memory and descriptors to root alone, cannot be
traced, and leaves no core. Standard library only, and little of it: every start pays for this.
"""

import os
import resource
import sys

MARK_VARIABLE = "GOENT_PROC"  # as in `proc.marks`, which is more than a start should load
MARK_OPTION = f"-X{MARK_VARIABLE}="  # the same among the interpreter's options
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Called first of all. What this process starts is not affected, but for the size of its cores."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform == "linux" and not _needs_a_readable_environment():
        _forbid_dumps()


def _needs_a_readable_environment() -> bool:
    """Whether the mark by which orphans are found is in the environment alone.

    That is a go-ent that some worker's command started. It has no more than that command has.
    """
    return MARK_VARIABLE in os.environ and not any(
        word.startswith(MARK_OPTION) for word in sys.orig_argv
    )


def _forbid_dumps() -> None:
    try:
        import ctypes  # noqa: PLC0415 (there are Pythons without it)

        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError) as error:
        sys.stderr.write(
            f"go-ent: this Python cannot close its processes to your other processes ({error}): "
            "those can read the keys in its environment\n"
        )
