"""A worker cannot take, hold or change what decides who serves its project, nor where that is."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from goent.domain.sandbox_port import SandboxSettings, SandboxStrictness
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent
from goent.system.project_folders import default_state_path, project_state_dir, runtime_dir
from goent.system.project_lock import LOCK_FILE, find_holder, lock_project

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.ordinary_user]

KEY = "test-1a2b3c"
TRY = """
import fcntl, sys
for path in sys.argv[1:]:
    for mode in ("rb", "r+b"):
        try:
            with open(path, mode) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                print("took", mode, path, file.read())
        except BlockingIOError:
            print("opened", mode, path)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    ("level", "kind"), [("auto", "command"), ("auto", "agent"), ("landlock", "command")]
)
async def test_locks_are_out_of_a_workers_reach(level: SandboxStrictness, kind: str) -> None:
    with TemporaryDirectory(prefix="go-ent-attack-", dir=Path.home()) as name:
        home, project = Path(name, "home"), Path(name, "project")
        for folder in (home / "run", project):
            folder.mkdir(0o700, parents=True)
        places = {"XDG_RUNTIME_DIR": f"{home}/run", "XDG_STATE_HOME": f"{home}/state"}
        environ = {"HOME": str(home), "PATH": os.environ["PATH"], **places}
        lock = lock_project(KEY, environ, "daemon")
        assert lock
        state, beside = project_state_dir(KEY, environ), runtime_dir(KEY, environ)
        usual = default_state_path(environ) / "projects" / KEY  # of who has no XDG_STATE_HOME
        more = (beside / LOCK_FILE, usual / LOCK_FILE) if level == "auto" else ()
        paths = [state / LOCK_FILE, *more]
        before = [path.read_bytes() for path in paths]
        sandbox = ProcessSandbox(
            settings=lambda: SandboxSettings(level=level), environ=lambda: environ, state=state
        )
        command = ("/usr/bin/env", "python3", "-c", TRY, *map(str, paths))
        if kind == "agent":
            confined = sandbox.agent(SandboxedAgent(command=command, env=environ, roots=(project,)))
        else:
            confined = sandbox.command(command, cwd=project, env=environ)
        async with confined as start:
            done = await anyio.run_process(start.command, cwd=project, env=dict(start.env))
        said = [line for line in done.stdout.decode().splitlines() if "/dev/null" not in line]
        reached = [line for line in said if not line.endswith("b''")]  # /dev/null is in its place
        assert reached == [], done.stdout
        assert [path.read_bytes() for path in paths] == before
        held = find_holder(KEY, environ)
        assert held and (held.pid, held.socket) == (os.getpid(), lock.socket)
        lock.close()
