"""A directory for each attempt: what it begins with, what runs around it, what changed in it."""

from goent.evals.workspaces.folders import workspaces_root
from goent.evals.workspaces.scratch import open_scratch, scratch_root
from goent.evals.workspaces.spaces import Keep, Workspaces, open_workspaces

__all__ = [
    "Keep",
    "Workspaces",
    "open_scratch",
    "open_workspaces",
    "scratch_root",
    "workspaces_root",
]
