"""What do the files call the types of tasks? Older names are read as well."""

from collections.abc import Mapping
from typing import Final

TYPES: Final[Mapping[str, str]] = {
    "implement": "implement",
    "feature": "implement",
    "fix": "fix",
    "bugfix": "fix",
    "refactor": "refactor",
    "format": "format",
    "lint": "format",
    "test": "test",
    "analyze": "analyze",
    "documentation": "documentation",
    "review": "review",
}
