"""A server that takes a prompt and never answers: nobody waits for it longer than there is hope."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from eval_opencode import Heard, a_home, an_attempt, spec
from scripted_opencode import SESSION, ScriptedOpenCode

from goent.evals.eval_ports import TargetError
from goent.evals.targets import opencode_attempt
from goent.evals.targets.opencode_target import OpenCodeTarget
from goent.evals.targets.opencode_target_servers import EvalServers
from goent.evals.traces import TokenUsage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture(scope="module")
async def at_hand(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[EvalServers]:
    async with a_home(tmp_path_factory.mktemp("evals")) as home, home.running():
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(opencode_attempt, "LOOK_INTERVAL_S", 0.1)
            yield home.servers


def target(servers: EvalServers, server: ScriptedOpenCode, **settings: object) -> OpenCodeTarget:
    return OpenCodeTarget(spec(base_url=server.url, model="a/b", **settings), servers)


@pytest.mark.spec("E12")
async def test_a_session_that_nobody_works_on_fails_and_does_not_hang(
    at_hand: EvalServers, cwd: Path
) -> None:
    with ScriptedOpenCode.running() as server:
        server.busy = False
        with pytest.raises(TargetError, match="does not work on the session any more") as caught:
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=30), Heard())
        assert (caught.value.kind, caught.value.retryable) == ("stalled", True)
        assert server.aborted.is_set()


@pytest.mark.spec("E12")
@pytest.mark.spec("E13")
async def test_one_that_is_worked_on_has_its_time_and_no_more(
    at_hand: EvalServers, cwd: Path
) -> None:
    with ScriptedOpenCode.running() as server:
        with pytest.raises(TargetError, match="not done after 1 s") as caught:
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=1), Heard())
        assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
        assert server.aborted.is_set()
        assert await anyio.to_thread.run_sync(server.left.wait, 20), "nobody listens any more"


@pytest.mark.spec("E12")
async def test_a_session_that_is_never_made_takes_its_time_and_no_more(
    at_hand: EvalServers, cwd: Path
) -> None:
    with ScriptedOpenCode.running() as server:
        server.deaf = "session"
        with pytest.raises(TargetError, match="had made no session after 1 s") as caught:
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=1), Heard())
        assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
        assert not server.prompted.is_set()


@pytest.mark.spec("E12")
async def test_a_session_is_deleted_even_if_its_turn_cannot_be_ended(
    at_hand: EvalServers, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencode_attempt, "CLEAN_UP_S", 0.5)
    with ScriptedOpenCode.running() as server:
        server.deaf = "abort"
        with pytest.raises(TargetError, match="not done after 1 s"):
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=1), Heard())
        assert server.deleted.is_set()


async def test_what_was_spent_is_told_of_an_attempt_that_is_cut_off(
    at_hand: EvalServers, cwd: Path
) -> None:
    heard = Heard()
    with ScriptedOpenCode.running() as server:
        async with anyio.create_task_group() as tasks:
            attempt = an_attempt(cwd, "x", limit=30)
            tasks.start_soon(target(at_hand, server).invoke, attempt, heard)
            assert await anyio.to_thread.run_sync(server.prompted.wait, 20)
            tasks.cancel_scope.cancel()
        assert server.aborted.is_set()
    assert heard.usage == TokenUsage(input=10, output=5, cached=4, reasoning=3)
    assert heard.cost_usd == 0.5


@pytest.mark.spec("E17")
async def test_a_question_that_the_stream_has_lost_is_found(
    at_hand: EvalServers, cwd: Path
) -> None:
    heard = Heard()
    with ScriptedOpenCode.running() as server:
        about = {"id": "per_1", "sessionID": SESSION, "permission": "bash", "patterns": ["rm x"]}
        others = {**about, "id": "per_2", "sessionID": "ses_2"}
        server.questions = [others, about]
        with pytest.raises(TargetError, match="permission 'bash' was refused for 'rm x'"):
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=30), heard)
        assert server.replies == [("per_1", "reject")]
    assert [decision.permission for decision in heard.decisions] == ["bash"]


@pytest.mark.spec("E18")
async def test_a_server_that_goes_away_fails_the_attempt_for_another_try(
    at_hand: EvalServers, cwd: Path
) -> None:
    with ScriptedOpenCode.running() as server:
        server.hangs_up = True
        with pytest.raises(TargetError) as caught:
            await target(at_hand, server).invoke(an_attempt(cwd, "x", limit=30), Heard())
    assert (caught.value.kind, caught.value.retryable) == ("server_unreachable", True)
