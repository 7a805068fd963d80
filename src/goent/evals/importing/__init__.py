"""Suites that were written for something else: what can be carried over, and what cannot."""

from goent.evals.importing.documents import Imported
from goent.evals.importing.importing import Kind, imported, write

__all__ = ["Imported", "Kind", "imported", "write"]
