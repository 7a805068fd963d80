"""Processes that cannot outlive us: marked, supervised, swept."""

from goent.proc.marks import MARK, marked, new_mark, new_owner, sweep_dead_owners
from goent.proc.run import Completed, run
from goent.proc.supervised import Supervised, supervised
from goent.proc.verify import ShellVerifier

__all__ = [
    "MARK",
    "Completed",
    "ShellVerifier",
    "Supervised",
    "marked",
    "new_mark",
    "new_owner",
    "run",
    "supervised",
    "sweep_dead_owners",
]
