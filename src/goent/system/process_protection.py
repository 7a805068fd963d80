"""Closes this process to the user's other processes, before it holds a key.

A process that is not dumpable shows its environment, memory and descriptors to root alone, cannot be
traced, and leaves no core. Standard library only, and little of it: every start pays for this.
"""

import os
import resource
import sys

MARK_VARIABLE = "GOENT_PROC"
MARK_OPTION = f"-X{MARK_VARIABLE}="  # the same as an option of the interpreter
_PR_SET_DUMPABLE = 4


def harden() -> None:
    """Close this process. Its children are not affected, except that they leave no core either."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    if sys.platform == "linux" and not _needs_a_readable_environment():
        _forbid_dumps()


def _needs_a_readable_environment() -> bool:
    """Whether the mark by which orphans are found is in the environment alone.

    This is so for a go-ent that a worker's command started; it has no keys that the command has not.
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
