"""Hooks and script graders write in the attempt's workspace and a temporary folder, and nowhere else."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from eval_desk import EvalDesk
from judged import ScriptedJudge, a_trace
from sandboxed import a_sandbox

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import SandboxStrictness
from goent.evals.eval_ports import TargetError
from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.suite_commands import SuiteCommand, SuiteCommandRunner
from goent.evals.suites import (
    EvalCase,
    GraderSpec,
    Hook,
    InputMessage,
    SuiteLocation,
    WorkspaceSpec,
)
from goent.evals.traces import Trace
from goent.evals.workspaces.attempt_workspaces import open_workspaces
from goent.evals.workspaces.workspace_folders import workspaces_root

pytestmark = pytest.mark.anyio

LEVELS: tuple[SandboxStrictness, ...] = ("auto", "landlock")

# Tries everything and tells what succeeded.
PROBE = """
import json, os, sys
from pathlib import Path
told = json.load(sys.stdin)
workspace = Path(told.get("workspace_path") or ".")
home = Path(os.environ["HOME"])
def wrote(path):
    try:
        Path(path).write_text("x")
        return True
    except OSError:
        return False
def read(path):
    try:
        return "secret" in Path(path).read_text()
    except OSError:
        return False
wrote("../made.txt")  # the tests' folders are temporary: in a private one it may succeed, and is gone
tried = {
    "workspace": wrote(workspace / "made.txt"),
    "temporary": wrote(os.environ["TMPDIR"] + "/made.txt"),
    "home": wrote(home / "made.txt"),
    "folder": wrote("made.txt"),
    "beside": workspace != home and wrote(workspace.parent / "made.txt"),  # the same
    "state": read(home / ".local/state/go-ent/history.db"),
    "config": read(home / ".config/go-ent/providers.yaml"),
    "trust": wrote(home / ".local/state/go-ent/trust/made"),
    "suite": Path("suite.txt").exists(),
}
"""
EXPECTED = {
    **dict.fromkeys(("workspace", "temporary", "suite"), True),
    **dict.fromkeys(("home", "folder", "beside", "state", "config", "trust"), False),
}


class Ground:
    """A home with go-ent's secrets in it, and a suite's folder."""

    def __init__(self, folder: Path, level: SandboxStrictness) -> None:
        self.home, self.suite = folder / "home", folder / "project" / "suite"
        state, config = self.home / ".local/state/go-ent", self.home / ".config/go-ent"
        for path in (state / "trust", config, self.suite):
            path.mkdir(parents=True)
        (state / "history.db").write_text("a secret")
        (config / "providers.yaml").write_text("a secret")
        (self.suite / "suite.txt").touch()
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.root = workspaces_root(self.environ)
        self.sandbox = a_sandbox(self.home, level=level)

    @property
    def commands(self) -> SuiteCommandRunner:
        return SuiteCommandRunner(environ=self.environ, sandbox=self.sandbox, workspaces=self.root)

    def untouched(self) -> bool:
        return not [
            path
            for path in self.suite.parents[1].rglob("made*")
            if path.parent.name != "work" and path.exists()
        ]

    async def graded(self, script: GraderSpec, trace: Trace, *files: Path) -> CaseGrade:
        case = EvalCase(
            id="c",
            suite="s",
            form="v4",
            input=(InputMessage(role="user", text="Greet Ann.", files=files),),
            graders=(script,),
            place=SuiteLocation(file=str(self.suite / "s.eval.yaml"), line=1),
        )
        return await ask_and_grade(
            case,
            trace,
            threshold=0.8,
            compat=False,
            tools=GraderTools(commands=self.commands, judge=ScriptedJudge("no")),
        )


@pytest.fixture(params=LEVELS)
def ground(tmp_path: Path, request: pytest.FixtureRequest) -> Ground:
    return Ground(tmp_path, request.param)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", code)


def script(code: str) -> GraderSpec:
    return GraderSpec(type="code-grader", name="probe", settings={"command": list(python(code))})


def a_case(workspace: WorkspaceSpec) -> EvalCase:
    said = (InputMessage(role="user", text="do it"),)
    return EvalCase(id="one", suite="s", form="v4", input=said, workspace=workspace)


async def test_a_hook_writes_in_the_workspace_alone(ground: Ground) -> None:
    tell = f'{PROBE}\n(workspace / "tried.json").write_text(json.dumps(tried))'
    spec = WorkspaceSpec(before_each=Hook(command=python(tell), cwd=ground.suite))
    async with (
        open_workspaces(ground.commands) as spaces,
        spaces.space(a_case(spec), target="t", trial=1, number=0) as space,
    ):
        assert json.loads((space.path / "tried.json").read_text()) == EXPECTED
        assert ground.untouched()
        assert not list(space.path.parent.glob("made*"))


async def test_a_script_grader_writes_in_the_workspace_alone(ground: Ground) -> None:
    workspace = ground.root / "run-1" / "1-one" / "work"
    workspace.mkdir(parents=True)
    trace = msgspec.structs.replace(a_trace(), workspace_path=str(workspace))
    tell = f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))'
    found = await ground.graded(script(tell), trace)
    assert found.grades[0].details == EXPECTED
    assert ground.untouched()


async def test_without_a_sandbox_all_of_it_would_succeed(tmp_path: Path) -> None:
    free = Ground(tmp_path, "off")
    free.environ["TMPDIR"] = str(tmp_path)
    workspace = free.root / "run-1" / "1-one" / "work"
    workspace.mkdir(parents=True)
    trace = msgspec.structs.replace(a_trace(), workspace_path=str(workspace))
    tell = f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))'
    found = await free.graded(script(tell), trace)
    assert found.grades[0].details == dict.fromkeys(EXPECTED, True)


async def test_a_composites_aggregator_is_confined_too(ground: Ground) -> None:
    aggregator = {
        "type": "code-grader",
        "command": list(python(f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))')),
    }
    member = GraderSpec(type="contains", name="ann", settings={"value": "Ann"})
    composite = GraderSpec(
        type="composite", name="all", settings={"aggregator": aggregator}, members=(member,)
    )
    found = await ground.graded(composite, a_trace())
    assert found.grades[0].details == {**EXPECTED, "workspace": False}  # it is told of none
    assert ground.untouched()


async def test_without_a_workspace_only_temporary_files_are_written(ground: Ground) -> None:
    tell = f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))'
    found = await ground.graded(script(tell), a_trace())
    assert found.grades[0].details == {**EXPECTED, "workspace": False}


@pytest.mark.parametrize("named", [".", ".config/go-ent", ".local/state/go-ent"])
async def test_a_trace_cannot_name_a_folder_to_write_in(ground: Ground, named: str) -> None:
    """Whoever gives away a run has written its traces."""
    trace = msgspec.structs.replace(a_trace(), workspace_path=str(ground.home / named))
    tell = f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))'
    found = await ground.graded(script(tell), trace)
    assert found.grades[0].details == {**EXPECTED, "workspace": False}
    assert ground.untouched()


async def test_a_workspace_that_became_a_link_leads_nowhere(ground: Ground) -> None:
    folder = ground.root / "run-1" / "1-one"
    folder.mkdir(parents=True)
    (folder / "work").symlink_to(ground.home)
    trace = msgspec.structs.replace(a_trace(), workspace_path=str(folder / "work"))
    tell = f'{PROBE}\nprint(json.dumps({{"score": 1, "details": tried}}))'
    found = await ground.graded(script(tell), trace)
    assert found.grades[0].details == {**EXPECTED, "workspace": False, "beside": False}
    assert ground.untouched()


async def test_a_script_cannot_name_go_ents_files_to_see_them(ground: Ground) -> None:
    """What a command line names stays visible in a temporary folder, but not in go-ent's own."""
    secret = ground.home / ".local/state/go-ent/projects/p/journal.db"
    secret.parent.mkdir(parents=True)
    secret.write_text("a secret")
    read = ("sh", "-c", 'cat "$0"; cat "$1"', str(secret), str(secret.parent / "journal.db"))
    for cwd in (ground.suite, secret.parent):
        order = SuiteCommand(command=read, cwd=cwd, stdin=b"", timeout_s=20, read_paths=(secret,))
        with suppress(WorkerCrashed):  # in a folder that is hidden it is not even started
            ran = await ground.commands.run(order)
            assert "a secret" not in ran.completed.output


async def test_a_long_answer_and_the_cases_files_can_be_read(
    ground: Ground, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    linked = tmp_path / "elsewhere" / "notes.md"
    linked.write_text("notes")
    code = """
import json, sys
from pathlib import Path
told = json.load(sys.stdin)
read = [Path(told["output_path"]).read_text()[:4], Path(told["input_files"][0]).read_text()]
print(json.dumps({"score": 1, "details": read}))
"""
    found = await ground.graded(script(code), a_trace("long" * 20_000), linked)
    assert found.grades[0].details == ["long", "notes"]


async def test_git_works_in_the_workspace_of_a_hook_and_of_a_grader(
    ground: Ground, tmp_path: Path
) -> None:
    """Its objects are borrowed from go-ent's own record, which lies in a hidden folder."""
    origin = tmp_path / "origin"
    origin.mkdir()
    begin = (
        "git init -q; echo one > file.txt; git add .; "
        "git -c user.name=Ann -c user.email=ann@example.org commit -qm 'first words'"
    )
    await anyio.run_process(["sh", "-ec", begin], cwd=origin)
    work = (
        "set -e; git log --oneline > log.txt; git show HEAD:file.txt >> log.txt; "
        "git config user.email bob@example.org; git config user.name Bob; "
        "echo two >> file.txt; git commit -qam second"
    )
    spec = WorkspaceSpec(
        repository=str(origin), before_each=Hook(command=("sh", "-c", f"cat > /dev/null; {work}"))
    )
    look = (
        "import json, subprocess, sys; told = json.load(sys.stdin); "
        "said = subprocess.run(['git', 'log', '--format=%s'], cwd=told['workspace_path'], "
        "capture_output=True, text=True); "
        "print(json.dumps({'score': 1, 'details': said.stdout.split() or said.stderr}))"
    )
    async with (
        open_workspaces(ground.commands) as spaces,
        spaces.space(a_case(spec), target="t", trial=1, number=0) as space,
    ):
        told = (space.path / "log.txt").read_text()
        assert "first words" in told and told.endswith("one\n")
        trace = msgspec.structs.replace(a_trace(), workspace_path=str(space.path))
        found = await ground.graded(script(look), trace)
        assert found.grades[0].details == ["second", "first", "words"]


NPM = "npm error Log files were not written due to an error writing to the directory: /h/.npm"


@pytest.mark.parametrize("command", ["echo x > $HOME/cache", f"echo '{NPM}' >&2; exit 1"])
async def test_a_hook_that_is_refused_names_the_setting(ground: Ground, command: str) -> None:
    spec = WorkspaceSpec(before_each=Hook(command=("sh", "-c", command)))
    async with open_workspaces(ground.commands) as spaces:
        with pytest.raises(TargetError, match=r"(?s)before_each .* ended with .*sandbox\.writable"):
            async with spaces.space(a_case(spec), target="t", trial=1, number=0):
                pytest.fail("it was not set up")


async def test_a_script_that_is_refused_names_the_setting(ground: Ground) -> None:
    found = await ground.graded(script("open('made', 'w')"), a_trace())
    (grade,) = found.grades
    assert grade.score == 0
    assert "sandbox.writable" in grade.assertions[0].text
    assert "Error" in grade.assertions[0].text


@pytest.mark.parametrize("level", LEVELS)
def test_a_run_confines_its_hooks_and_graders_and_notes_how(
    tmp_path: Path, level: SandboxStrictness
) -> None:
    desk = EvalDesk(tmp_path)
    config = tmp_path / "home" / ".config" / "go-ent"
    config.mkdir(parents=True)
    (config / "config.yaml").write_text(f"sandbox: {{level: {level}}}\n# secret\n")
    look = 'cat "$HOME/.config/go-ent/config.yaml" 2> /dev/null | grep -q secret && exit 3'
    hook = f"{look}; echo x > kept.txt; echo x > {desk.folder}/made 2> /dev/null; true"
    grader = (
        f"cat > /dev/null; {look}; echo x > {desk.folder}/made 2> /dev/null && exit 4; "
        'test -s "$GOENT_WORKSPACE_PATH/kept.txt" && echo true'
    )
    desk.targets(one="cat {PROMPT_FILE} > {OUTPUT_FILE}")
    test = {
        "id": "a",
        "input": "say hello",
        "workspace": {"hooks": {"before_each": {"command": ["sh", "-c", hook]}}},
        "assertions": [{"type": "code-grader", "command": ["sh", "-c", grader]}],
    }
    suite = desk.write("demo.eval.yaml", {"name": "demo", "tests": [test]})
    run = desk.go_ent("run", suite, "--target", "one", "--out", desk.out)
    assert run.code == 0, run
    assert not (desk.folder / "made").exists()
    noted = json.loads((desk.out / "run.json").read_text())["sandbox"]
    assert noted == ("landlock" if level == "landlock" else "namespace")


def test_a_run_that_confines_nothing_says_so_and_notes_nothing(tmp_path: Path) -> None:
    desk = EvalDesk(tmp_path)
    desk.targets(one="cat {PROMPT_FILE} > {OUTPUT_FILE}")
    asked = ("run", desk.suite(["a"]), "--target", "one", "--out", desk.out)
    plan = desk.go_ent(*asked, "--dry-run")
    assert "one: `cli` commands run outside the sandbox" in plan.out
    run = desk.go_ent(*asked)
    assert run.code == 0, run
    assert json.loads((desk.out / "run.json").read_text()).get("sandbox") is None
