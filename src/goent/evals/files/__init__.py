"""Suites and targets, read from the files of either dialect of AgentV."""

from goent.evals.files.grading import load_graders
from goent.evals.files.suites import load_suites
from goent.evals.files.targets import load_targets
from goent.evals.files.validating import Checked, validate

__all__ = ["Checked", "load_graders", "load_suites", "load_targets", "validate"]
