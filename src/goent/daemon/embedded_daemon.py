"""Runs `go-ent mcp --embedded`: daemon and MCP server in one process, for containers and tests."""

import os
import sys
from pathlib import Path

import anyio

from goent.composition.app import open_app
from goent.domain.errors import GoentError
from goent.mcp.server import McpFrontend
from goent.operations.operation_table import Caller
from goent.rpc.byte_streams import stdio
from goent.system.project_folders import UnsafeFolder, find_project, project_key
from goent.system.project_lock import find_holder, lock_project


def run_embedded(cwd: Path) -> int:
    """Serve the client on standard input and output; workers end with this process."""
    try:
        project = find_project(cwd)
        key = project_key(project)
        lock, held = lock_project(key, os.environ, "embedded"), None
        while lock is None and held is None:  # another process may only have checked the lock
            held = find_holder(key, os.environ)
            lock = None if held else lock_project(key, os.environ, "embedded")
    except UnsafeFolder as error:
        sys.stderr.write(f"go-ent: {error}\n")
        return 3
    if lock is None:
        sys.stderr.write(
            f"go-ent: {held} already serves {str(project)!r}: leave out --embedded to "
            "share it, or end it with `go-ent daemon stop`\n"
        )
        return 3
    try:
        anyio.run(_serve, project, cwd)
    except GoentError as error:
        sys.stderr.write(f"go-ent: {error}\n")
        return error.exit_code
    finally:
        lock.close()
    return 0


async def _serve(project: Path, cwd: Path) -> None:
    async with open_app(project, dict(os.environ)) as app, stdio() as (receive, send):
        app.head_start.on_client()
        mcp = McpFrontend(app.operations, app.queries)
        await mcp.serve_streams(receive, send, Caller(name="mcp", cwd=cwd))
