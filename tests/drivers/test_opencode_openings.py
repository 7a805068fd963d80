"""What becomes of a session when OpenCode is killed while it is being opened?"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from opencode_stage import Heard, processes, stage

from goent.domain.settings import PermissionRule
from goent.domain.types import Prompt
from goent.drivers.opencode.client import Client
from goent.testing import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HELLO = case("say hello", say("Hello."))
SCRIPT = Script(
    providers={
        "moonshot": openai(HELLO, key="sk-moon"),
        "deepseek": openai(HELLO),
        "local": openai(HELLO),
    }
)


@pytest.mark.spec("P25")
async def test_a_death_between_two_steps_of_opening_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up, killed = Client.set_up, set[int]()

    async def kill_first(
        self: Client, session: str, *, title: str, rules: Sequence[PermissionRule]
    ) -> None:
        if not killed:
            killed.update(processes("acp"))
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        await set_up(self, session, title=title, rules=rules)

    monkeypatch.setattr(Client, "set_up", kill_first)
    heard = Heard()
    async with (
        stage(SCRIPT, tmp_path) as built,
        built.driver.open(built.spec(built.settings.project)) as session,
    ):
        assert await session.prompt(Prompt(text="say hello"), heard.emit) == "end"
        assert killed and not killed & processes("acp")
    assert heard.text == "Hello."
