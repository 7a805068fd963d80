"""What runs around an attempt, and what stays of its directory."""

import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from sandboxed import eval_commands

from goent.domain.sandbox_port import SandboxSettings
from goent.evals.eval_ports import TargetError
from goent.evals.suites import EvalCase, Hook, InputMessage, WorkspaceSpec
from goent.evals.workspaces import workspace_folders
from goent.evals.workspaces.attempt_workspaces import KeepPolicy, open_workspaces
from goent.evals.workspaces.workspace_folders import workspaces_root
from goent.proc import process_table

pytestmark = pytest.mark.anyio

ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def a_case(workspace: WorkspaceSpec | None = None, *, name: str = "one") -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    return EvalCase(
        id=name, suite="s", form="v4", input=said, workspace=workspace, metadata={"level": 3}
    )


def shell(command: str, timeout_s: float = 60.0) -> Hook:
    return Hook(command=("sh", "-c", command), timeout_s=timeout_s)


def opening(folder: Path) -> SandboxSettings:
    """Hooks can write there, because the user has said so: what they do in a workspace goes with it."""
    folder.mkdir()
    return SandboxSettings(writable=(folder,))


def left(root: Path) -> Iterator[Path]:
    """Directories of attempts that are still there."""
    return root.glob("run-*/*/work")


async def test_hooks_run_around_each_attempt_and_around_all(tmp_path: Path) -> None:
    said = tmp_path / "notes" / "said"
    say = f'printf "%s " $0 >> {said}; cat >> {said}; echo >> {said}'
    spec = WorkspaceSpec(
        before_all=Hook(command=("sh", "-c", f"echo shared > all.txt; {say}", "before_all")),
        before_each=Hook(command=("sh", "-c", f"echo own > each.txt; {say}", "before_each")),
        after_each=Hook(command=("sh", "-c", f"{say}; ls >> {said}", "after_each")),
        after_all=Hook(command=("sh", "-c", say, "after_all")),
    )
    async with open_workspaces(
        eval_commands(ENVIRON, root=tmp_path / "root", settings=opening(said.parent)),
        run_id="run-7",
    ) as spaces:
        for name in ("one", "two"):
            case = a_case(spec, name=name)
            async with spaces.space(case, target="t", trial=1, number=0) as space:
                assert (space.path / "all.txt").read_text() == "shared\n"
                assert (space.path / "each.txt").read_text() == "own\n"
                (space.path / "done.txt").write_text("done\n")
                told = await space.changes()
                assert "done.txt" in told and "each.txt" not in told
    lines = said.read_text().splitlines()
    order = [line.split(" ")[0] for line in lines if "{" in line]
    each = ["before_each", "after_each"]
    assert order == ["before_all", *each, *each, "after_all"]
    assert lines.count("done.txt") == 2
    told = json.loads(lines[1].partition(" ")[2])
    assert Path(told.pop("workspace_path")).name == "work"
    assert told == {
        "eval_run_id": "run-7",
        "test_id": "one",
        "case_input": "do it",
        "case_metadata": {"level": 3},
    }


async def test_a_set_up_that_fails_before_all_fails_its_cases_and_no_other(tmp_path: Path) -> None:
    runs = tmp_path / "notes" / "runs"
    failing = WorkspaceSpec(before_all=shell(f"echo x >> {runs}; echo no network >&2; exit 4"))
    async with open_workspaces(
        eval_commands(ENVIRON, root=tmp_path / "root", settings=opening(runs.parent))
    ) as spaces:

        async def one(name: str) -> None:
            with pytest.raises(
                TargetError, match=r"before_all .* ended with 4: no network"
            ) as failed:
                async with spaces.space(a_case(failing, name=name), target="t", trial=1, number=0):
                    pytest.fail("it was not set up")
            assert failed.value.kind == "setup_failed"

        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(one, name)
        async with spaces.space(a_case(), target="t", trial=1, number=0) as space:
            assert space.path.is_dir()
    assert runs.read_text() == "x\n"
    assert not list((tmp_path / "root").iterdir())


async def test_a_failed_tear_down_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    spec = WorkspaceSpec(after_each=shell("exit 3"), after_all=Hook(command=("no-such-program",)))
    async with (
        open_workspaces(
            eval_commands(ENVIRON, root=tmp_path / "root"), warn=warnings.append
        ) as spaces,
        spaces.space(a_case(spec), target="t", trial=1, number=0) as space,
    ):
        space.mark_passed()
    assert "after_each (sh -c 'exit 3') ended with 3" in warnings[0]
    assert "after_all (no-such-program): cannot start" in warnings[1]


async def test_a_hook_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "notes" / "pid"
    spec = WorkspaceSpec(before_each=shell(f"setsid sleep 600 & echo $! > {pid}; sleep 600", 2.0))
    async with open_workspaces(
        eval_commands(ENVIRON, root=tmp_path / "root", settings=opening(pid.parent))
    ) as spaces:
        with pytest.raises(TargetError, match="took longer than 2 s"):
            async with spaces.space(a_case(spec), target="t", trial=1, number=0):
                pytest.fail("it was not set up")
    with anyio.fail_after(20):
        while process_table.start_time(int(pid.read_text())):  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.05)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("failure", ["failed"]), ("always", ["failed", "passed"]), ("never", [])],
)
async def test_what_failed_is_kept_and_what_passed_is_not(
    tmp_path: Path, keep: KeepPolicy, kept: list[str]
) -> None:
    root = tmp_path / "root"
    for _ in range(2):  # the second run finds what the first one left
        async with open_workspaces(eval_commands(ENVIRON, root=root), keep=keep) as spaces:
            for name in ("passed", "failed", "empty"):
                async with spaces.space(a_case(name=name), target="t", trial=1, number=0) as space:
                    if name != "empty":
                        (space.path / "file").write_text(name)
                    if name == "passed":
                        space.mark_passed()
    assert sorted(path.joinpath("file").read_text() for path in left(root)) == sorted(2 * kept)


async def test_what_is_interrupted_is_not_kept(tmp_path: Path) -> None:
    said = tmp_path / "notes" / "said"
    settings = opening(said.parent)
    case = a_case(WorkspaceSpec(after_each=shell(f"echo torn down > {said}")))
    with anyio.CancelScope() as scope:
        async with (
            open_workspaces(
                eval_commands(ENVIRON, root=tmp_path / "root", settings=settings)
            ) as spaces,
            spaces.space(case, target="t", trial=1, number=0) as space,
        ):
            (space.path / "file").write_text("half")
            scope.cancel()
            await anyio.sleep_forever()
    assert said.read_text() == "torn down\n"
    assert not list((tmp_path / "root").iterdir())


KILLED = """
import sys
from pathlib import Path
import anyio
from goent.evals.suite_commands import SuiteCommandRunner
from goent.evals.suites import EvalCase, InputMessage
from goent.evals.workspaces.attempt_workspaces import open_workspaces
from goent.domain.sandbox_port import SandboxSettings
from goent.sandbox.process_sandbox import ProcessSandbox

def case(name):
    return EvalCase(id=name, suite="s", form="v4", input=(InputMessage(role="user", text="x"),))

async def main(root):
    sandbox = ProcessSandbox(settings=SandboxSettings, environ=dict, state=Path(root).parent)
    commands = SuiteCommandRunner(environ={}, sandbox=sandbox, workspaces=Path(root))
    async with open_workspaces(commands) as spaces:
        async with spaces.space(case("failed"), target="t", trial=1, number=0) as space:
            (space.path / "file").write_text("to be kept")
        async with spaces.space(case("running"), target="t", trial=1, number=0) as space:
            (space.path / "file").write_text("half")
            print("ready", flush=True)
            await anyio.sleep_forever()

anyio.run(main, sys.argv[1])
"""


async def test_what_a_killed_run_left_is_swept_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"

    async def another_run() -> None:
        async with (
            open_workspaces(eval_commands(ENVIRON, root=root)) as spaces,
            spaces.space(a_case(), target="t", trial=1, number=0) as space,
        ):
            space.mark_passed()

    command = [sys.executable, "-c", KILLED, str(root)]
    async with await anyio.open_process(command) as process:
        assert process.stdout
        assert (await process.stdout.receive()).strip() == b"ready"
        await another_run()
        assert len(list(left(root))) == 2, "its owner lives"
        process.send_signal(signal.SIGKILL)
        await process.wait()
    await another_run()
    assert [path.joinpath("file").read_text() for path in left(root)] == ["to be kept"]
    monkeypatch.setattr(workspace_folders, "KEPT_S", 0.0)
    await another_run()
    assert not list(root.iterdir())


def test_the_usual_place_is_the_users_own(tmp_path: Path) -> None:
    root = workspaces_root({"XDG_STATE_HOME": str(tmp_path)})
    assert root == tmp_path / "go-ent" / "evals" / "workspaces"
    assert root.parents[1].stat().st_mode & 0o077 == 0


async def test_a_disk_that_takes_no_more_fails_one_attempt(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "large").write_bytes(os.urandom(3_000_000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with open_workspaces(eval_commands(ENVIRON, root=tmp_path / "root")) as spaces:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            case = a_case(WorkspaceSpec(template=template))
            with pytest.raises(TargetError, match=r"cannot be copied: .*File too large"):
                async with spaces.space(case, target="t", trial=1, number=0):
                    pytest.fail("there is no room")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        async with spaces.space(a_case(), target="t", trial=1, number=0) as space:
            (space.path / "small").write_text("fits")
    assert len(list(left(tmp_path / "root"))) == 1
