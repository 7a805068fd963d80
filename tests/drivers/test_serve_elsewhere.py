"""Workers on an `opencode serve` that somebody else runs, and on a line to it that breaks."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

import anyio
import msgspec
import pytest
from opencode_script import SCRIPT
from opencode_stage import ALLOW, ASK, PATIENCE, Heard, processes
from relay import Relay
from serve_stage import PASSWORD, ServeStage, serve_stage, somebodys_server

from goent.domain.errors import OpenCodeMissing, PermissionBypassed
from goent.domain.ports import WorkerSession
from goent.domain.types import Prompt, Usage
from goent.opencode.server_api import OpenCodeClient
from goent.testing.script import Script, call, case, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

COUNTED = "".join(f"{n:03} " for n in range(60))
CASES = (
    case(
        "count",
        call("bash", command="echo one", description="1").having(say=COUNTED, pace=0.03, chunk=4),
        call("bash", command="echo two", description="2").having(say="And. ", gate="second"),
        say("Done.").having(gate="third"),
    ),
    case("say hello", say("Hello.")),
    case(
        "delegate",
        call("task", description="a", prompt="the part", subagent_type="general"),
        say("Delegated."),
    ),
    case("the part", call("bash", command="touch by-subagent", description="t"), say("Touched.")),
    case("write asked.txt", call("write", filePath="{cwd}/asked.txt", content="x\n"), say("Ok.")),
)
LOCAL = SCRIPT.providers["local"]


class Elsewhere(NamedTuple):
    """Somebody's server: the way to it by a relay, and a look at it without."""

    stage: ServeStage
    relay: Relay
    there: OpenCodeClient

    @property
    def directory(self) -> str:
        return str(self.stage.settings.project)

    def opened(self, *, ask: bool = False) -> AbstractAsyncContextManager[WorkerSession]:
        rules = ASK if ask else ALLOW
        spec = self.stage.spec(self.stage.settings.project, "local", rules=rules)
        return self.stage.serving.open(spec)


@pytest.fixture(scope="module")
async def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    local = msgspec.structs.replace(LOCAL, cases=(*LOCAL.cases, *CASES))
    script = Script(providers={**SCRIPT.providers, "local": local})
    async with (
        serve_stage(script, folder) as stage,
        somebodys_server(stage.models, folder) as url,
        Relay.to(url) as relay,
        OpenCodeClient.at(url, PASSWORD) as there,
    ):
        go_to(stage, relay.url)
        stage.environ["SERVE_PASSWORD"] = PASSWORD
        yield Elsewhere(stage, relay, there)
        assert await there.is_healthy(5), "it was used, and not stopped"


def go_to(stage: ServeStage, url: str) -> None:
    there = msgspec.structs.replace(
        stage.settings.opencode, serve_url=url, serve_password_env="SERVE_PASSWORD"
    )
    stage.use(opencode=there)


async def seen(true: Callable[[], Awaitable[object]]) -> None:
    with anyio.fail_after(PATIENCE):
        while not await true():  # noqa: ASYNC110 (somebody's server tells this to nobody else)
            await anyio.sleep(0.02)


async def test_somebodys_server_is_used_with_its_own_keys(elsewhere: Elsewhere) -> None:
    stage, heard = elsewhere.stage, Heard()
    async with elsewhere.opened() as session:
        assert await session.prompt(Prompt(text="spend"), heard.emit) == "end"
        assert not (await session.liveness()).alive
    assert heard.text == "Spent."
    assert {e.source for e in heard.usage} == {"opencode"}
    spent = sum((e.usage for e in heard.usage), Usage())
    assert spent == Usage(input=900, output=100, cache_read=200, reasoning=10)
    assert (stage.calls, processes("serve")) == ([], set()), "nothing of ours had a part in it"


async def test_what_its_subagents_do_unasked_ends_the_turn(elsewhere: Elsewhere) -> None:
    """Rules of a session do not reach its subagents, and a server that is not ours has no guard."""
    async with elsewhere.opened(ask=True) as session:
        with pytest.raises(PermissionBypassed, match="touch by-subagent"):
            await session.prompt(Prompt(text="delegate"), Heard().emit)
    async with elsewhere.opened() as session:
        assert await session.prompt(Prompt(text="delegate"), Heard().emit) == "end"


async def test_without_its_password_or_without_it_the_remedy_is_named(
    elsewhere: Elsewhere,
) -> None:
    stage = elsewhere.stage
    password = stage.environ.pop("SERVE_PASSWORD")
    with pytest.raises(OpenCodeMissing, match="serve_password_env"):
        async with elsewhere.opened():
            pass
    stage.environ["SERVE_PASSWORD"] = password
    go_to(stage, "http://127.0.0.1:9")
    with pytest.raises(OpenCodeMissing, match=r"127\.0\.0\.1:9.*opencode serve --port"):
        async with elsewhere.opened():
            pass
    go_to(stage, elsewhere.relay.url)


async def test_what_a_broken_stream_swallows_is_told_once_and_in_order(
    elsewhere: Elsewhere,
) -> None:
    models, relay, heard = elsewhere.stage.models, elsewhere.relay, Heard()

    async def break_it() -> None:
        await heard.until(lambda: heard.text)
        relay.cut()
        await models.wait_for(
            lambda call: call.case == "count" and call.pieces > 30, timeout=PATIENCE
        )
        relay.mend()  # in the middle of the text
        await models.at_gate("second", timeout=PATIENCE)
        await heard.until(lambda: heard.ended_tools)
        relay.cut()
        models.open_gate("second")
        await models.at_gate("third", timeout=PATIENCE)
        relay.mend()  # between two messages
        await heard.until(lambda: len(heard.ended_tools) == 2)
        models.open_gate("third")

    async with elsewhere.opened() as session, anyio.create_task_group() as tasks:
        tasks.start_soon(break_it)
        assert await session.prompt(Prompt(text="count"), heard.emit) == "end"
    assert heard.text == f"{COUNTED}And. Done."
    assert [tool.output for tool in heard.ended_tools] == ["one\n", "two\n"]


async def test_a_turn_that_begins_and_ends_unheard_ends_when_the_stream_is_back(
    elsewhere: Elsewhere,
) -> None:
    heard = Heard()

    async def break_it() -> None:
        await elsewhere.stage.models.wait_for(
            lambda call: call.case == "say hello", timeout=PATIENCE
        )
        await seen(lambda: is_idle(elsewhere))
        elsewhere.relay.mend()

    async with elsewhere.opened() as session, anyio.create_task_group() as tasks:
        elsewhere.relay.cut()
        tasks.start_soon(break_it)
        with anyio.fail_after(20):
            assert await session.prompt(Prompt(text="say hello"), heard.emit) == "end"
    assert heard.text == "Hello."


async def test_a_no_with_words_goes_on_where_no_guard_of_ours_is(elsewhere: Elsewhere) -> None:
    models, heard = elsewhere.stage.models, Heard()

    async def answer() -> None:
        asked = await heard.question()
        assert asked.always, "an always is for this very edit"
        assert await session.answer(asked.id, "reject", "write nothing")

    async with elsewhere.opened(ask=True) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        with anyio.fail_after(20):
            assert await session.prompt(Prompt(text="write asked.txt"), heard.emit) == "end"
    assert heard.text == "Ok."
    assert "write nothing" in str(models.calls[-1].request)


async def is_idle(elsewhere: Elsewhere) -> bool:
    return not await elsewhere.there.busy(elsewhere.directory)


async def test_a_question_that_was_asked_unheard_is_asked_again(elsewhere: Elsewhere) -> None:
    """Also one that falls between the beginning of a new stream and the first that it brings."""
    relay, there, heard = elsewhere.relay, elsewhere.there, Heard()
    async with elsewhere.opened(ask=True) as session:

        async def answer(n: int) -> None:
            await seen(lambda: there.questions(elsewhere.directory))
            assert len(heard.questions) == n - 1
            relay.mend()
            if relay.deaf:
                relay.deaf = False
                await there.create(elsewhere.directory, title="somebody else's", rules=())
            await session.answer((await heard.question(n)).id, "allow_once")

        for n in (1, 2):
            relay.cut()
            if n == 2:
                relay.deaf = True
                relay.mend()
                await relay.begun.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer, n)
                with anyio.fail_after(20):
                    assert await session.prompt(Prompt(text="write asked.txt"), heard.emit) == "end"
    assert (heard.text, len(heard.questions)) == ("Ok.Ok.", 2)
