"""A worker on an ACP agent: sessions, turns, models, costs, and what an agent may get wrong."""

import json
import os
from decimal import Decimal
from pathlib import Path

import anyio
import pytest
from agent_stage import Stage, ask, during
from msgspec.structs import replace

from goent.agents import agent_process
from goent.domain.errors import (
    BudgetSpent,
    GoentError,
    ModelRefused,
    NothingSaid,
    ProtocolError,
    ProviderRefused,
    RateLimited,
    RequestError,
    UnknownModel,
    WorkerBusy,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.settings import AgentSettings, OpenCodeSettings
from goent.domain.types import Command, FileChange, Prompt, Usage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


async def test_an_agent_works_in_the_workers_directory_and_remembers(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage:
        async with stage.open() as session:
            assert (await ask(session, "cwd")).text == str(stage.project)
            assert (await ask(session, "say hello")).text == "hello"
            assert (await ask(session, "history")).text == "cwd | say hello | history"
            assert session.token == "", "this agent keeps no sessions"
        assert not stage.at_work()


@pytest.mark.parametrize(
    ("name", "value"), [("SECRET_API_KEY", "unset"), ("GOENT_LOG", "unset"), ("EDITOR", "ed")]
)
async def test_keys_that_go_ent_holds_are_kept_from_agents(
    tmp_path: Path, name: str, value: str
) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        assert (await ask(session, f"env {name}")).text == value


async def test_a_hermetic_profile_gives_agents_a_home_of_their_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.settings = replace(stage.settings, opencode=OpenCodeSettings(profile="hermetic"))
    async with stage.running(), stage.open() as session:
        assert (await ask(session, "env HOME")).text == str(tmp_path / "agent-home")


# Sessions that outlive a process


@pytest.mark.parametrize("flags", [("--keep",), ("--keep", "--resumes")])
async def test_a_session_goes_on_in_another_process(tmp_path: Path, flags: tuple[str, ...]) -> None:
    keep, *more = flags
    async with Stage(tmp_path, keep, str(tmp_path / "sessions"), *more).running() as stage:
        async with stage.open() as session:
            await ask(session, "say one")
            token = session.token
            assert token
        async with stage.open(resume=token) as session:
            assert session.token == token
            heard = await ask(session, "history")
            assert heard.text == "say one | history", "what was said before is not told again"


@pytest.mark.spec("A23")
async def test_an_agent_that_dies_in_a_turn_fails_it_and_the_next_prompt_goes_on(
    tmp_path: Path,
) -> None:
    kept = str(tmp_path / "sessions")
    async with Stage(tmp_path, "--keep", kept).running() as stage, stage.open() as session:
        await ask(session, "say one")
        async with during(session, "die 7") as turn:
            pass
        assert isinstance(turn.error, WorkerCrashed)
        assert turn.error.returncode == 7 and turn.error.session_lives
        assert "ended with code 7: out of luck" in str(turn.error)
        (tool,) = turn.heard.ended_tools
        assert tool.status == "failed" and "may or may not" in tool.output
        assert (await ask(session, "history")).text == "say one | die 7 | history"


async def test_an_agent_that_ends_between_two_turns_is_started_again(tmp_path: Path) -> None:
    kept = str(tmp_path / "sessions")
    async with Stage(tmp_path, "--keep", kept).running() as stage, stage.open() as session:
        await ask(session, "say one")
        (agent,) = stage.at_work()
        os.kill(agent, 9)
        await stage.until_dead(agent)
        assert (await ask(session, "history")).text == "say one | history"


async def test_an_agent_that_keeps_no_sessions_cannot_go_on_after_its_end(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, "die 1") as turn:
            pass
        assert isinstance(turn.error, WorkerCrashed) and not turn.error.session_lives
        with pytest.raises(WorkerError, match="actor keeps no sessions"):
            await session.prompt(Prompt(text="say x"), turn.heard.emit)


async def test_an_agent_that_hangs_up_and_lives_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_process, "EXIT_CODE_TIMEOUT_S", 0.1)
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, "hangup") as turn:
            pass
        assert isinstance(turn.error, WorkerCrashed) and "hung up" in str(turn.error)
        assert not stage.at_work()


async def test_a_session_that_the_agent_has_lost_is_told(tmp_path: Path) -> None:
    async with Stage(tmp_path, "--keep", str(tmp_path / "sessions")).running() as stage:
        with pytest.raises(WorkerError, match="actor has no session 's-gone' to resume"):
            async with stage.open(resume="s-gone"):
                pass
        assert not stage.at_work()


# Cancelling


async def test_a_cancelled_turn_keeps_what_it_said_and_the_worker_goes_on(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, "wait") as turn:
            await turn.heard.until(lambda: turn.heard.text == "waiting")
            with pytest.raises(WorkerBusy):
                await session.prompt(Prompt(text="say x"), turn.heard.emit)
            await session.cancel()
        assert (turn.reason, turn.heard.text) == ("cancelled", "waiting")
        assert (await ask(session, "say on")).text == "on"


async def test_an_agent_that_does_not_listen_to_a_cancel_is_ended_within_the_grace(
    tmp_path: Path,
) -> None:
    flags = ("--deaf", "--keep", str(tmp_path / "sessions"))
    async with Stage(tmp_path, *flags, grace=0.5).running() as stage, stage.open() as session:
        async with during(session, "wait") as turn:
            await turn.heard.until(lambda: turn.heard.text == "waiting")
            with anyio.fail_after(20):
                await session.cancel()
        assert turn.reason == "cancelled"
        assert (await ask(session, "history")).text == "wait | history"


async def test_what_an_agent_started_ends_with_it(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage:
        async with stage.open() as session:
            await ask(session, "bash sleep 300")
            await stage.until_at_work(2)
        await stage.until_at_work(0)


# Models


@pytest.mark.parametrize("way", ["options", "legacy"])
async def test_the_model_is_chosen_by_the_option_or_by_the_older_request(
    tmp_path: Path, way: str
) -> None:
    async with Stage(tmp_path, "--models", way).running() as stage:
        async with stage.open(model="large") as session:
            assert (await ask(session, "model")).text == "large"
        with pytest.raises(UnknownModel, match=r"actor has no model 'tiny'; it has: small, large"):
            async with stage.open(model="tiny"):
                pass


async def test_a_model_of_an_agent_that_offers_none_is_refused(tmp_path: Path) -> None:
    async with Stage(tmp_path, "--models", "none").running() as stage:
        with pytest.raises(UnknownModel, match=r"leave `models` out of agents\.actor"):
            async with stage.open(model="large"):
                pass
        async with stage.open() as session:
            assert (await ask(session, "say x")).text == "x"


# What it tells


async def test_tool_calls_are_told_with_their_files_and_commands(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open(permissions="auto") as session:
        path = str(stage.project / "a.txt")
        edit = [
            {"title": "Edit a.txt", "kind": "edit", "rawInput": {"file_path": path}},
            {
                "status": "completed",
                "content": [
                    {"type": "diff", "path": path, "oldText": "a\nb\n", "newText": "a\nc\nd\n"}
                ],
            },
        ]
        (done,) = (await ask(session, f"call {json.dumps(edit)}")).ended_tools
        assert done.tool == "edit" and done.detail == path
        assert done.changes == (FileChange(path="a.txt", added=2, removed=1),)

        run = [
            {"title": "make", "kind": "execute", "rawInput": {"command": ["make", "-j"]}},
            {"status": "in_progress"},
            {"status": "failed", "rawOutput": {"exit_code": 2, "output": "no rule"}},
        ]
        heard = await ask(session, f"call {json.dumps(run)}")
        assert [tool.status for tool in heard.tools] == ["pending", "running", "failed"]
        last = heard.tools[-1]
        assert (last.tool, last.output) == ("bash", "no rule")
        assert last.command == Command(command="make -j", exit=2)


async def test_what_an_agent_says_of_its_costs_is_an_estimate(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        told = {"costs": [0.01, 0.03], "usage": {"inputTokens": 100, "outputTokens": 20}}
        heard = await ask(session, f"spend {json.dumps(told)}")
        assert [report.cost_usd for report in heard.usage] == [
            Decimal("0.01"),
            Decimal("0.02"),
            Decimal(0),
        ]
        assert sum((r.usage for r in heard.usage), Usage()) == Usage(input=100, output=20)
        assert {report.source for report in heard.usage} == {"estimate"}

        (again,) = (await ask(session, 'spend {"costs": [0.05]}')).usage
        assert again.cost_usd == Decimal("0.02")
        (unknown,) = (await ask(session, "say x")).usage
        assert unknown.cost_usd is None, "what nobody tells is unknown, not 0"
        (foreign,) = (await ask(session, 'spend {"costs": [9], "currency": "EUR"}')).usage
        assert foreign.cost_usd is None


# What it gets wrong


@pytest.mark.parametrize(
    ("flags", "error", "words"),
    [
        (("--at-start", "exit"), WorkerCrashed, "actor .* ended with code 3: no config found"),
        (("--at-start", "silent"), WorkerCrashed, "actor .* did not answer within 1 s"),
        (("--version", "2"), ProtocolError, "actor speaks ACP version 2, go-ent speaks 1"),
        (("--no-such-flag",), WorkerCrashed, "unrecognized arguments"),
    ],
)
async def test_an_agent_that_cannot_begin_is_told_why_and_nothing_is_left(
    tmp_path: Path, flags: tuple[str, ...], error: type[GoentError], words: str
) -> None:
    async with Stage(tmp_path, *flags, patience=1).running() as stage:
        with pytest.raises(error, match=words):
            async with stage.open():
                pass
        assert not stage.at_work()


async def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.settings = replace(
        stage.settings, agents={"actor": AgentSettings(command=("/no/such/agent",))}
    )
    async with stage.running():
        with pytest.raises(WorkerCrashed, match="cannot start '/no/such/agent'"):
            async with stage.open():
                pass


async def test_a_worker_needs_a_directory(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage:
        with pytest.raises(RequestError, match="does not exist"):
            async with stage.open(cwd=tmp_path / "gone"):
                pass


async def test_noise_on_the_line_is_no_reason_to_fail(tmp_path: Path) -> None:
    stage = Stage(tmp_path, "--at-start", "garbage")
    async with stage.running(), stage.open() as session:
        assert (await ask(session, "noise")).text == "still here"


async def test_a_flood_of_updates_arrives_in_order_and_a_huge_line_is_taken(
    tmp_path: Path,
) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        flood = (await ask(session, "flood 5000")).text
        assert flood.split() == [str(number) for number in range(5000)]
        assert len((await ask(session, "long 3000000")).text) == 3000004


async def test_a_line_beyond_all_limits_is_left_out_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        assert (await ask(session, f"long {70 * 1024 * 1024}")).text == "done"


async def test_files_and_terminals_are_not_offered(tmp_path: Path) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        assert (await ask(session, "write x.txt")).text == "-32601-32601"
        assert not (stage.project / "x.txt").exists()


@pytest.mark.parametrize(
    ("prompt", "error", "words"),
    [
        ("mute", NothingSaid, "without a word"),
        ("stop refusal", ModelRefused, "refused to answer"),
        ("stop max_turn_requests", WorkerError, "ended its turn early"),
        ('refuse {"message": "it broke"}', WorkerError, "actor: it broke"),
        ('refuse {"message": "x", "data": {"kind": "rate_limited"}}', RateLimited, "x"),
        (
            'refuse {"message": "Internal error: go-ent: budget_exceeded: all gone"}',
            BudgetSpent,
            "all gone",
        ),
        ('refuse {"code": -32000, "message": "m"}', ProviderRefused, "requires a login"),
    ],
)
async def test_how_a_turn_can_fail(
    tmp_path: Path, prompt: str, error: type[GoentError], words: str
) -> None:
    async with Stage(tmp_path).running() as stage, stage.open() as session:
        async with during(session, prompt) as turn:
            pass
        assert isinstance(turn.error, error) and words in str(turn.error)
        assert (await ask(session, "say on")).text == "on", "the session lives"


async def test_an_agent_whose_data_the_sandbox_closes_names_the_setting(tmp_path: Path) -> None:
    data = tmp_path / ".elsewhere"
    data.mkdir()
    stage = Stage(tmp_path)
    actor = stage.settings.agents["actor"]
    command = ("sh", "-c", f'touch {data}/x && exec "$@"', "sh", *actor.command)
    stage.settings = replace(stage.settings, agents={"actor": replace(actor, command=command)})
    async with stage.running():
        with pytest.raises(WorkerCrashed, match=r"add that folder to `sandbox\.writable`"):
            async with stage.open():
                pass
        sandbox = stage.settings.sandbox
        opened = replace(sandbox, writable=(*sandbox.writable, data))
        stage.settings = replace(stage.settings, sandbox=opened)
        async with stage.open() as session:
            assert (await ask(session, "say hello")).text == "hello"


async def test_an_agent_that_calls_its_models_itself_is_refused_without_a_network(
    tmp_path: Path,
) -> None:
    """It would either reach nothing, or keep the network that the setting takes away."""
    stage = Stage(tmp_path)
    closed = replace(stage.settings.sandbox, network="gateway")
    stage.settings = replace(stage.settings, sandbox=closed)
    async with stage.running():
        with pytest.raises(ProviderRefused, match=r"sandbox\.network: gateway"):
            async with stage.open():
                pass
