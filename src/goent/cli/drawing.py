"""The parts of rich that go-ent draws with, each imported when it is first used.

A command that draws nothing (`--json`, `--detach`) does not pay for them: rich costs as much as all of
go-ent that `ps` needs.
"""

from typing import TYPE_CHECKING

__all__ = ("Console", "Group", "Live", "RenderableType", "Table", "Text", "cell_len")

if TYPE_CHECKING:
    from rich.cells import cell_len
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text
else:
    from importlib import import_module

    _MODULES = {
        "cell_len": "rich.cells",
        "Console": "rich.console",
        "Group": "rich.console",
        "Live": "rich.live",
        "Table": "rich.table",
        "Text": "rich.text",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(name)
        return globals().setdefault(name, getattr(import_module(_MODULES[name]), name))
