"""A sandbox as the daemon has it, for tests that need no daemon."""

import atexit
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from goent.domain.sandbox_port import SandboxSettings, SandboxStrictness
from goent.evals.suite_commands import SuiteCommandRunner
from goent.evals.workspaces.workspace_folders import workspaces_root
from goent.proc.child_process import CompletedCommand, run_command
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent


def a_sandbox(
    home: Path, settings: SandboxSettings | None = None, *, level: SandboxStrictness = "auto"
) -> ProcessSandbox:
    """For a user who lives in `home`, where its own files lie too."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    return ProcessSandbox(
        settings=lambda: settings or SandboxSettings(level=level),
        environ=lambda: environ,
        state=home / ".local" / "state" / "go-ent" / "projects" / "test",
    )


def eval_commands(
    environ: Mapping[str, str],
    *,
    root: Path | None = None,
    settings: SandboxSettings | None = None,
) -> SuiteCommandRunner:
    """What runs hooks and scripts of evaluations, with this environment; workspaces are below `root`."""
    home = _a_home()
    return SuiteCommandRunner(
        environ=environ,
        sandbox=a_sandbox(home, settings),
        workspaces=root or workspaces_root({"HOME": str(home)}),
    )


@cache
def _a_home() -> Path:
    """Somebody's who does nothing there."""
    folder = TemporaryDirectory(prefix="go-ent-home-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


async def in_an_agent(
    sandbox: ProcessSandbox, project: Path, command: str, *, env: Mapping[str, str] | None = None
) -> CompletedCommand:
    """What comes of a command that an agent runs, by the shell that confines it again."""
    await sandbox.level()
    own = env or {"HOME": str(project.parent / "home"), "PATH": os.environ["PATH"]}
    variables = {**own, **sandbox.shell_variables(project, own)}
    agent = SandboxedAgent(
        command=(str(sandbox.shell()), "-c", command), env=variables, roots=(project,)
    )
    async with sandbox.agent(agent) as start:
        return await run_command(start.command, cwd=project, env=start.env, timeout=60)
