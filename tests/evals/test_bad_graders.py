"""What bad graders get: an outcome that was decided on, and nobody else is harmed."""

import json
import os
import sys
from pathlib import Path

import anyio
import msgspec
import pytest
from judged import ScriptedJudge, a_case, a_trace
from sandboxed import eval_commands

from goent.domain.errors import ConfigError
from goent.domain.sandbox_port import SandboxSettings
from goent.evals.eval_results import CaseGrade, Grade
from goent.evals.files.suite_reader import load_suites
from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import GraderTools
from goent.evals.suites import GraderSpec, SuiteLocation
from goent.evals.traces import Trace, TracedCall
from goent.proc import process_table

pytestmark = pytest.mark.anyio

FINE = GraderSpec(type="contains", name="fine", settings={"value": "Ann"})
ENVIRON = {"PATH": "/usr/bin:/bin", "TOLD": "yes"}


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-I", "-c", code, *args]


def shell(code: str) -> list[str]:
    return ["/bin/sh", "-c", code]


def script(command: list[str], name: str = "bad", **settings: object) -> GraderSpec:
    given = {"command": command, "timeout_seconds": 60.0, **settings}
    return GraderSpec(type="code-grader", name=name, settings=given)


async def graded(
    *graders: GraderSpec,
    trace: Trace | None = None,
    compat: bool = False,
    writable: tuple[Path, ...] = (),
) -> CaseGrade:
    sandbox = SandboxSettings(writable=writable)
    with anyio.fail_after(45):
        return await ask_and_grade(
            a_case(*graders),
            trace or a_trace(),
            threshold=0.8,
            compat=compat,
            tools=GraderTools(
                commands=eval_commands(ENVIRON, settings=sandbox), judge=ScriptedJudge("no")
            ),
        )


async def beside_a_good_one(
    spec: GraderSpec, *, compat: bool = False, writable: tuple[Path, ...] = ()
) -> Grade:
    found = await graded(spec, FINE, compat=compat, writable=writable)
    bad, fine = found.grades
    assert (fine.score, fine.verdict) == (1, "pass")
    assert found.status != "execution_error"
    msgspec.json.encode(found)
    return bad


def said(grade: Grade) -> str:
    return grade.assertions[0].text


def all_gone(folder: Path) -> bool:
    pids = [int(path.read_text()) for path in folder.glob("*.pid")]
    assert pids
    return not any(process_table.start_time(pid) for pid in pids)


async def test_a_script_that_hangs_is_ended_with_its_children(tmp_path: Path):
    code = f"""
        trap '' TERM
        (trap '' TERM; sh -c 'echo $$ > {tmp_path}/child.pid; exec sleep 600') &
        echo $$ > {tmp_path}/own.pid
        while true; do sleep 1; done
    """
    hangs = script(shell(code), timeout_seconds=3.0)
    bad = await beside_a_good_one(hangs, writable=(tmp_path,))
    assert bad.score == 0
    assert "ran for more than 3 s" in said(bad)
    assert all_gone(tmp_path)


async def test_a_daemon_that_a_script_leaves_behind_is_swept(tmp_path: Path):
    code = f"""
        setsid sh -c 'echo $$ > {tmp_path}/daemon.pid; exec sleep 600' &
        until [ -s {tmp_path}/daemon.pid ]; do sleep 0.05; done
        echo '{{"score": 0.5}}'
    """
    bad = await beside_a_good_one(script(shell(code)), writable=(tmp_path,))
    assert bad.score == 0.5  # what it said counts, whoever still holds the pipe
    assert all_gone(tmp_path)


@pytest.mark.parametrize("where", ["stdout", "stderr"])
async def test_a_script_that_floods_us_is_cut_off(where: str):
    code = f"import sys; [sys.{where}.write('x' * 10**6) for _ in range(100)]; sys.exit(1)"
    bad = await beside_a_good_one(script(python(code)))
    assert bad.score == 0
    assert len(said(bad)) < 5000


async def test_a_verdict_at_the_end_of_a_flood_is_none():
    code = "print('x' * 5_000_000); print('{\"score\": 1}')"
    bad = await beside_a_good_one(script(python(code)))
    assert (bad.score, bad.verdict) == (0, "fail")
    assert "printed more than 1048576 bytes" in said(bad)


async def test_a_script_that_ends_before_it_reads_is_none_the_worse():
    long = a_trace("Ann" + "x" * 3_000_000)
    found = await graded(script(shell("exec 0<&-; echo 0.9")), FINE, trace=long)
    assert [grade.score for grade in found.grades] == [0.9, 1]


@pytest.mark.parametrize(
    ("output", "word", "agentv"),
    [
        ('{"score": NaN}', "wrong form", 1),
        ('{"score": "high"}', "wrong form", 1),
        ('{"score": 1', "wrong form", 1),
        ('{"assertions": [{"text": "a"}]}', "wrong form", 1),
        ('{"details": ' + "[" * 100_000, "wrong form", 1),
        ('{"score": 85}', "a score is from 0 to 1", 1),
        ('{"score": -1}', "a score is from 0 to 1", 0),
        ("85", "a score is from 0 to 1", 1),
        ("{}", "neither `score`", 0),
        ("null", "wrong form", 1),
        ("[]", "wrong form", 1),
        ('"good"', "wrong form", 1),
        ("NaN", "wrong form", 1),
        ('{"score": 0}\ndone', "wrong form", 1),
        ('loading\n  {"score": 0}', "wrong form", 1),
    ],
)
async def test_rubbish_fails_its_grader_and_says_why(output: str, word: str, agentv: float):
    command = python("import sys; sys.stdout.write(sys.argv[1])", output)
    bad = await beside_a_good_one(script(command))
    assert (bad.score, bad.verdict) == (0, "fail")
    assert word in said(bad)
    assert (await beside_a_good_one(script(command), compat=True)).score == agentv


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (shell("echo 'no disk' >&2; exit 3"), "ended with 3: no disk"),
        (shell("echo '{\"score\": 1}'; exit 1"), "ended with 1"),
        (shell("kill -9 $$"), "ended with -9"),
    ],
)
async def test_a_script_that_fails_does_not_pass_by_negation(command: list[str], word: str):
    for spec in (script(command), msgspec.structs.replace(script(command), negate=True)):
        bad = await beside_a_good_one(spec)
        assert (bad.score, bad.verdict) == (0, "fail")
        assert word in said(bad)


@pytest.mark.parametrize("name", ["no-such-program-here", "./not-there"])
async def test_a_script_that_cannot_be_started_is_no_fault_of_the_agent(name: str):
    found = await graded(script([name]), FINE)
    assert (found.status, found.score) == ("execution_error", 0)
    assert found.error is not None
    assert f"cannot start '{name}'" in found.error
    assert (await graded(script([name]), FINE, compat=True)).status == "quality_failure"


def test_a_script_that_is_not_there_is_a_mistake_with_its_line(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "check.sh").touch()
    suite = tmp_path / "my.eval.yaml"
    suite.write_text("""\
tests:
  - id: a
    input: x
    assertions:
      - {type: code-grader, command: [sub/check.sh]}
      - {type: code-grader, command: [./check.sh], cwd: sub}
      - {type: code-grader, name: gone, command: [./check.sh]}
      - {type: code-grader, command: [no-such-program-here]}
      - {type: code-grader, command: [python3, sub/../gone.py]}
      - {type: code-grader, command: [python3, -c, "print(1)", gone.py]}
      - {type: code-grader, command: [sh, sub/check.sh, gone.sh]}
""")
    with pytest.raises(ConfigError) as caught:
        load_suites([suite], {})
    assert str(caught.value) == (
        f"{suite}:7: tests[0].assertions[2]: Grader 'gone': there is no file './check.sh' in "
        f"'{tmp_path}'; correct the path, or `cwd`.\n"
        f"{suite}:9: tests[0].assertions[4]: Grader 'code-grader': there is no file 'sub/../gone.py' in "
        f"'{tmp_path}'; correct the path, or `cwd`."
    )
    assert load_suites([suite], {}, compat=True)


@pytest.mark.parametrize(
    ("output", "worth"),
    [
        ('loading\n{"score": 0}', 0),
        ('loading\n{\n  "score": 0.25\n}\n', 0.25),
        ("false", 0),
        ("true", 1),
        ("0.9", 0.9),
        ("all is well", 1),
    ],
)
async def test_a_verdict_is_read_after_what_a_script_logs(output: str, worth: float):
    command = python("import sys; sys.stdout.write(sys.argv[1])", output)
    assert (await beside_a_good_one(script(command))).score == worth


@pytest.mark.parametrize(
    "code", ["echo 1; exit 1", "echo 0.9; exit 1", "echo so; kill -9 $$", "echo true; exit 2"]
)
async def test_a_script_that_crashes_has_no_opinion(code: str):
    for spec in (script(shell(code)), msgspec.structs.replace(script(shell(code)), negate=True)):
        bad = await beside_a_good_one(spec)
        assert (bad.score, bad.verdict) == (0, "fail")
        assert "It ended with" in said(bad)


async def test_a_script_may_say_no_in_words():
    assert (await beside_a_good_one(script(shell("echo 'not polite'; exit 1")))).score == 0
    no = msgspec.structs.replace(script(shell("echo 'not polite'; exit 1")), negate=True)
    assert (await beside_a_good_one(no)).score == 1


async def test_a_silent_1_is_a_no_and_any_other_silence_is_none():
    for command, score in (("false", 0), ("exit 2", 0)):
        assert (await beside_a_good_one(script(shell(command)))).score == score
    for command, score in (("false", 1), ("exit 2", 0), ("true", 0)):
        negated = msgspec.structs.replace(script(shell(command)), negate=True)
        assert (await beside_a_good_one(negated)).score == score


async def test_a_script_that_looks_at_a_directory_that_was_removed_has_no_say(tmp_path: Path):
    gone = msgspec.structs.replace(
        a_trace("Hello, Ann"), workspace_path=str(tmp_path / "gone")
    ).without_missing_workspace()
    asking = tmp_path / "asking.sh"
    asking.write_text('test -e "$AGENTV_WORKSPACE_PATH/made.txt"\n')
    for command in (
        shell('grep -q x "$GOENT_WORKSPACE_PATH/made.txt"'),
        python("import json, sys; open(json.load(sys.stdin)['workspace_path'] + '/made.txt')"),
        ["/bin/sh", str(asking)],
    ):
        found = await graded(script(command), FINE, trace=gone)
        assert found.status == "execution_error"
        assert "was removed: run the case again" in (found.error or "")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    other = await graded(script(["true", str(pipe), "/dev/zero"]), FINE, trace=gone)
    assert other.status == "ok", "who does not look there can still be asked"


async def test_a_pattern_that_never_ends_is_interrupted():
    answer = "a" * 60 + "b, Ann"
    endless = GraderSpec(type="regex", name="r", settings={"value": "(a+)+$"})
    args = {"expected": [{"tool": "t", "args": {"x": "(a+)+$"}}], "args_match": "regex"}
    call = TracedCall(tool="t", input={"x": answer})
    inside = GraderSpec(type="tool-trajectory", name="t", settings={"mode": "in_order", **args})
    found = await graded(endless, inside, FINE, trace=a_trace(answer, call))
    assert [grade.score for grade in found.grades] == [0, 0, 1]
    assert all("needs more than 1 s" in said(grade) for grade in found.grades[:2])


async def test_a_defect_of_a_grader_costs_no_other_one(caplog: pytest.LogCaptureFixture):
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    items = [{"tool": "t", "args": {"x": deep}}]
    settings = {"mode": "in_order", "expected": items}
    lost = GraderSpec(type="tool-trajectory", name="lost", settings=settings)
    odd = GraderSpec(type="llm-grader", name="odd")
    found = await ask_and_grade(
        a_case(odd, lost, FINE),
        a_trace("Ann", TracedCall(tool="t", input={"x": deep})),
        threshold=0.8,
        compat=False,
        tools=GraderTools(commands=eval_commands(ENVIRON), judge=ScriptedJudge("no")),
    )
    assert [grade.score for grade in found.grades] == [0, 0, 1]
    assert "'odd' has a defect: RecursionError" in said(found.grades[0])
    assert "'lost' has a defect: RecursionError" in said(found.grades[1])
    assert len(caplog.records) == 2


async def test_bytes_that_are_no_text_are_read_as_well_as_they_can():
    code = "import sys; sys.stdout.buffer.write(bytes(range(128, 256)))"
    bad = await beside_a_good_one(script(python(code)))
    assert bad.score == 1  # it ended well, and said something


async def test_a_script_gets_its_own_environment_and_where_the_attempt_worked():
    code = "import json, os; print(json.dumps({'score': 1, 'details': dict(os.environ)}))"
    trace = msgspec.structs.replace(a_trace(), workspace_path="/somewhere")
    found = await graded(script(python(code)), trace=trace)
    details = msgspec.convert(found.grades[0].details, dict[str, str])
    assert {name: details[name] for name in ("TOLD", "PATH")} == {
        "TOLD": "yes",
        "PATH": "/usr/bin:/bin",
    }
    assert details["GOENT_WORKSPACE_PATH"] == details["AGENTV_WORKSPACE_PATH"] == "/somewhere"
    assert "HOME" not in details


@pytest.mark.parametrize(("length", "in_file"), [(50_000, False), (50_001, True)])
async def test_a_long_answer_is_in_a_file_that_is_gone_afterwards(length: int, in_file: bool):
    code = """if True:
        import json, sys
        told = json.load(sys.stdin)
        path = told.get("output_path")
        answer = open(path, encoding="utf-8").read() if path else told["output"]
        print(json.dumps({"score": 1, "details": {"path": path, "length": len(answer)}}))
    """
    found = await graded(script(python(code)), trace=a_trace("ä" * length))
    details = msgspec.convert(found.grades[0].details, dict[str, str | int | None])
    assert details["length"] == length
    assert (details["path"] is not None) == in_file
    assert not in_file or not Path(str(details["path"])).exists()


async def test_a_script_cannot_take_its_own_folder_away_and_one_without_any_harms_nobody(
    tmp_path: Path,
):
    place = SuiteLocation(file=str(tmp_path / "room/x.eval.yaml"))
    (tmp_path / "room").mkdir()
    remove = script(shell("rm -r ../room; echo 0.9"))
    for expected in (0.9, 0):
        case = msgspec.structs.replace(a_case(remove, FINE), place=place)
        found = await ask_and_grade(
            case,
            a_trace(),
            threshold=0.8,
            compat=False,
            tools=GraderTools(commands=eval_commands(ENVIRON), judge=ScriptedJudge("no")),
        )
        assert [grade.score for grade in found.grades] == [expected, 1]
        if expected:
            (tmp_path / "room").rmdir()


SUITE = """\
tests:
  - id: a
    input: x
    expected_output: {name: Ann}
    assertions:
      - {type: regex, value: "("}
      - {type: regex, value: a, flags: q}
      - {type: tool-trajectory, mode: in_order, args_match: regex, expected: [{tool: a, args: {x: "["}}]}
      - {type: tool-trajectory, mode: exact, expected: [{tol: a}]}
      - {type: field-accuracy, fields: [{path: age}]}
      - {type: llm-grader}
      - {type: llm-grader, prompt: gone.md}
      - {type: rubrics, criteria: [{id: a, outcome: x, weight: 0}]}
      - {type: rubrics, criteria: [{id: a, outcom: x}]}
      - {type: composite, assertions: [{type: regex, value: ")"}], aggregator: {type: code}}
      - {type: contains, value: fine}
"""


def test_what_no_attempt_could_pass_is_a_mistake_with_its_line(tmp_path: Path):
    (tmp_path / "bad.eval.yaml").write_text(SUITE)
    with pytest.raises(ConfigError) as caught:
        load_suites([tmp_path], {})
    told = str(caught.value)
    assert "bad.eval.yaml:15: tests[0].assertions[9].aggregator.command: is missing" in told
    (tmp_path / "bad.eval.yaml").write_text(SUITE.replace("{type: code}", "{type: code, path: x}"))
    with pytest.raises(ConfigError) as caught:
        load_suites([tmp_path], {})
    lines = str(caught.value).splitlines()
    words = ["regular", "flags", "regular", "tool", "'age'", "good", "gone.md", "weight", "outcom"]
    deeper = {3: ".expected[0].tol", 8: ".criteria[0].outcom", 9: ".assertions[0]"}
    assert len(lines) == len(words) + 1
    for number, (line, word) in enumerate(zip(lines, [*words, "regular"], strict=True)):
        inner = deeper.get(number, "")
        assert f"bad.eval.yaml:{6 + number}: tests[0].assertions[{number}]{inner}: " in line
        assert word in line


def test_a_mistake_of_a_suites_own_grader_is_told_once(tmp_path: Path):
    cases = [{"id": str(number), "input": "x"} for number in range(3)]
    suite = {"tests": cases, "assertions": [{"type": "regex", "value": "("}]}
    (tmp_path / "bad.eval.yaml").write_text(json.dumps(suite))
    with pytest.raises(ConfigError) as caught:
        load_suites([tmp_path], {})
    assert len(str(caught.value).splitlines()) == 1
    assert load_suites([tmp_path], {}, compat=True)  # AgentV takes it, and its score is 0
