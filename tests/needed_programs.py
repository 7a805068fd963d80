"""Tells which test files start OpenCode: those that import `opencode`, themselves or by a helper."""

import ast
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


def needs_opencode(file: Path) -> bool:
    return HERE / "opencode.py" in _imported(file)


def _imported(file: Path) -> set[Path]:
    """The helpers in this folder that a test file imports, and theirs."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        new = {_helpers()[name] for name in _imports(waiting.pop()) if name in _helpers()} - found
        found |= new
        waiting += new
    return found


@cache
def _imports(file: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return frozenset(names)


@cache
def _helpers() -> dict[str, Path]:
    return {
        path.stem: path
        for path in HERE.rglob("*.py")
        if "node_modules" not in path.parts and not path.stem.startswith("test_")
    }
