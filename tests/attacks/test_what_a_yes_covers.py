"""What a model tries so that one yes allows more than its owner was shown; on the real OpenCode."""

from collections.abc import AsyncGenerator

import pytest
from opencode_workers import ASKING, KEY, Workers, workers

from goent.domain.types import Method
from goent.testing.script import Script, Step, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SECRET = "s3cret"
CONFIG = """\
opencode: {profile: hermetic, warm: false}
permissions: {rules: [{tool: bash, pattern: "cat *", action: allow}]}
"""
REMOVE = "rm -f *.txt"


def run(command: str, workdir: str) -> Step:
    return call("bash", command=command, description="Run it", workdir=workdir)


@pytest.fixture(scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Workers]:
    folder = tmp_path_factory.mktemp("covered")
    for name in ("granted", "other"):
        (folder / name).mkdir()
        (folder / name / "x.txt").write_text(f"{SECRET} of {name}\n")
    granted, other = folder / "granted", folder / "other"
    done = say("Done.")
    cases = (
        case(
            "look further",
            run("cat x.txt", str(granted)),
            run(f"cat {other}/x.txt", str(granted)),
            done,
        ),
        case(
            "clean up", run(REMOVE, "build"), run(REMOVE, "{cwd}/src"), run(REMOVE, "build"), done
        ),
    )
    script = Script(providers={"moonshot": openai(*cases, key=KEY, models=("glm-4",))})
    async with workers(folder, script, config=CONFIG) as attacked:
        yield attacked


@pytest.mark.parametrize("method", ASKING)
async def test_an_always_for_one_folder_leads_to_no_other(
    attacked: Workers, method: Method
) -> None:
    outcome = await attacked.run(method, "look further", "ask", answer="allow_always")
    granted, further = outcome.asked
    folder = attacked.project.parent
    assert (granted.tool, granted.always) == ("external_directory", (f"{folder}/granted/*",))
    assert (further.tool, further.detail) == ("external_directory", f"cat {folder}/other/x.txt")


@pytest.mark.parametrize("method", ASKING)
async def test_an_always_for_a_command_holds_where_it_was_asked_for(
    attacked: Workers, method: Method
) -> None:
    for name in ("build", "src"):
        (attacked.project / name).mkdir(exist_ok=True)
        (attacked.project / name / "x.txt").touch()
    outcome = await attacked.run(method, "clean up", "ask", answer="allow_always")
    assert outcome.details == [f"cd build && {REMOVE}", f"cd src && {REMOVE}"]
    assert [question.always for question in outcome.asked] == [(each,) for each in outcome.details]
