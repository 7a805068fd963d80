"""What an evaluation would run, if an agent asks for it: nothing before somebody has trusted it."""

from pathlib import Path

import pytest
from attended_play import SUITE, TARGETS, furnish, run, runs_of

from goent.cli.trust import project_acts
from goent.config.trust_records import grant, revoke
from goent.domain.errors import RequestError

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    furnish(made)
    return made


async def test_what_an_agent_names_runs_nothing_that_nobody_has_trusted(project: Path) -> None:
    environ = {"HOME": str(project.parent)}
    async with runs_of(project) as runs:
        revoke(project, environ)
        with pytest.raises(RequestError, match=r"targets\.yaml: targets\.slow.*go-ent trust"):
            await run(runs, project, target=("slow",))
        assert (await run(runs, project)).total == 3, "who only says something harms nobody"


HOOKED = """\
execution: {{target: good}}
{more}
tests:
  - {{id: c1, input: is it, assertions: [{graders}]}}
"""


@pytest.mark.parametrize(
    ("more", "graders", "told"),
    [
        ("", "{type: code-grader, command: [sh, ./evil.sh]}", "grade with `sh ./evil.sh`"),
        (
            "workspace: {hooks: {before_each: {command: [sh, -c, 'touch x']}}}",
            "{type: contains, value: x}",
            "run `sh -c touch x`",
        ),
    ],
)
async def test_hooks_and_graders_of_a_suite_wait_for_a_yes(
    project: Path, more: str, graders: str, told: str
) -> None:
    environ = {"HOME": str(project.parent)}
    script = project / "evil.sh"
    script.write_text("echo '{}'\n")
    (project / "demo.eval.yaml").write_text(HOOKED.format(more=more, graders=graders))
    async with runs_of(project) as runs:
        assert (await run(runs, project)).total == 1, "it was trusted"
        revoke(project, environ)
        with pytest.raises(RequestError, match=told.replace("`", ".")):
            await run(runs, project)
        grant(project, environ, project_acts(project, environ))
        (project / "demo.eval.yaml").write_text(SUITE.replace("is it", "is it so"))
        script.write_text("echo evil\n")
        assert (await run(runs, project)).total == 3, "nothing is left that acts"


async def test_a_program_of_a_target_is_part_of_what_was_allowed(project: Path) -> None:
    environ = {"HOME": str(project.parent)}
    suite = project / "evals" / "demo.eval.yaml"
    suite.parent.mkdir()
    (project / "demo.eval.yaml").rename(suite)
    told = "{name: own, provider: cli, command: 'sh ./answer.sh {OUTPUT_FILE}'}"
    (project / ".goent/targets.yaml").write_text(f"{TARGETS}  - {told}\n")
    (suite.parent / "answer.sh").write_text('echo yes it is > "$1"\n')
    grant(project, environ, project_acts(project, environ))
    allowed = {act.digest for act in project_acts(project, environ)}
    (suite.parent / "answer.sh").write_text('echo evil > "$1"\n')
    waiting = [act for act in project_acts(project, environ) if act.digest not in allowed]
    assert {act.key for act in waiting} == {"targets.own"}


async def test_a_long_setting_of_a_target_hides_no_other(project: Path) -> None:
    told = f"{{name: own, provider: cli, command: 'evil {{OUTPUT_FILE}} # {'x' * 2000} and worse'}}"
    (project / ".goent/targets.yaml").write_text(f"targets:\n  - {told}\n")
    (found,) = project_acts(project, {"HOME": str(project.parent)})
    assert "and worse" in found.says
