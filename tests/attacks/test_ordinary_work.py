"""What legitimate users do with workers, on the real OpenCode: it works, or its setting is named.

`tests/sandbox/` has the same without OpenCode, in more detail.
"""

import re
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from opencode_workers import METHODS, workers

from goent.domain.types import Method
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

GIT = "git -c user.name=u -c user.email=u@x -c init.defaultBranch=main"
ASK = """\
import time, urllib.request
for _ in range(200):
    try:
        print(urllib.request.urlopen('http://127.0.0.1:18733').status)
        break
    except OSError:
        time.sleep(0.05)
"""
WORK = (  # each says something with "fine" in it
    "mkdir -p a b; echo 1 > a/x; python3 -c \"import os; os.rename('a/x', 'b/x')\" && echo fine",
    "printf 'all:\\n\\t@echo fine\\n' > Makefile && make",
    f"{GIT} init -q; {GIT} commit -q --allow-empty -m x && git checkout -qb y && echo fine",
    'echo fine > "$TMPDIR/x"; cat "$TMPDIR/x"',
    'cat "$TMPDIR/x"',
    "(python3 -m http.server 18733 --bind 127.0.0.1 > s.log 2>&1 &); echo fine",
    f'python3 -c "{ASK}" && echo fine',
)
REFUSED = "npm cache verify"


def script(*commands: str) -> Script:
    steps = [call("bash", command=each, description="work") for each in commands]
    told = case("work", *steps, say("Done."))
    return Script(providers={"moonshot": openai(told, models=("glm-4",), key="sk-attacked-51c2")})


@pytest.fixture
def folder() -> Generator[Path]:
    """In no temporary folder."""
    with TemporaryDirectory(prefix="go-ent-work-", dir=Path.home()) as name:
        yield Path(name)


@pytest.mark.parametrize("limits", ["level: auto", "level: landlock", "read: listed"])
async def test_ordinary_work_is_done(folder: Path, limits: str) -> None:
    config = f"opencode: {{profile: hermetic, warm: false}}\nsandbox: {{{limits}}}\n"
    async with workers(folder, script(*WORK), config=config) as built:
        await built.run("acp", "work", "auto", answer="allow_once")
        results = built.tool_results("work")
    assert len(results) == len(WORK)
    assert [each for each in zip(WORK, results, strict=True) if "fine" not in each[1]] == []


@pytest.mark.parametrize("method", METHODS)
async def test_a_refused_command_names_its_setting_and_with_it_works(
    folder: Path, method: Method
) -> None:
    config = "opencode: {profile: user, warm: false}\n"
    async with workers(folder, script(REFUSED), config=config) as built:
        await built.run(method, "work", "auto", answer="allow_once")
        (refused,) = built.tool_results("work")
        assert refused.count("go-ent's sandbox") == 1, refused
        setting = re.search(r"`(sandbox: \{.*\})` in (~/\S+)\)$", refused.strip())
        assert setting and setting[1] == "sandbox: {writable: [~/.npm]}", refused
        settings = built.home / setting[2].removeprefix("~/")
        settings.write_text(f"{config}{setting[1]}\n")
        await built.run(method, "work", "auto", answer="allow_once")
        (allowed,) = built.tool_results("work")
    assert "go-ent's sandbox" not in allowed and "Cache verified" in allowed, allowed


@pytest.mark.parametrize("method", METHODS)
async def test_workers_are_run_where_only_the_gateway_is_reached(
    folder: Path, method: Method
) -> None:
    config = "opencode: {profile: hermetic, warm: false}\nsandbox: {network: gateway}\n"
    async with workers(folder, script("echo fine"), config=config) as built:
        done = await built.run(method, "work", "auto", answer="allow_once")
        assert done.result.state == "completed", done
        assert "fine" in built.tool_results("work")[0]
