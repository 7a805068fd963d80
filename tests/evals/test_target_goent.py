"""Go-ent's own workers as a target: api, the own agent, races. The daemon is real, the models are scripted."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import anyio
import pytest
from eval_stage import AttemptWitness, attempt_at, environment_of, open_workers, target
from world import COLD, World, a_world, kill

from goent.domain.events import EventEnvelope
from goent.domain.requests import SpawnRequest
from goent.domain.types import Value
from goent.evals.eval_ports import DaemonRefused, R, TargetError
from goent.evals.eval_results import read_rows
from goent.evals.suites import TargetSpec
from goent.evals.targets.goent_target import GoentTarget, RacerObserver
from goent.evals.traces import Trace, TracedMessage
from goent.testing.script import Script, Step, call, case, fail, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
KEY = "sk-moonshot-real-key"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("say hello", say("Hello there.")),
            case("never end", Step(say="Well…", gate="never")),
            case("be down", fail(401)),
            case(
                "begin and wait",
                call("Write", file_path="{cwd}/begun.txt", content="hi\n"),
                Step(say="Well…", gate="halfway"),
            ),
            case(
                "leave a note",
                call("write", filePath="{cwd}/note.txt", content="by acp\n").having(say="I will."),
                call("bash", command="false", description="fail"),
                say("Left."),
            ),
            case(
                "make hello",
                call("Write", file_path="{cwd}/hello.txt", content="hi\n").having(say="I write."),
                say("Written."),
            ),
            case(
                "win the race",
                call("Write", file_path="{cwd}/hello.txt", content="hi\n").having(say="I write."),
                Step(say="Written.", gate="won"),
            ),
            case("be the first", Step(say="I am.", gate="first")),
            case("run it", call("Bash", command="echo ran > ran.txt"), say("Ran.")),
            models=("glm-4", "kimi"),
            key=KEY,
        ),
        "deepseek": openai(
            case("win the race", call("Bash", command="sleep 600")),
            case("be the first", Step(say="slow", gate="second")),
            case("say hello", say("Hi.")),
            models=("coder",),
            key="sk-deepseek-real-key",
        ),
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory):
    config = COLD + "default_provider: moonshot/glm-4\n"
    async with a_world(tmp_path_factory.mktemp("world"), SCRIPT, config=config) as made:
        with environment_of(made):
            yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "attempt"
    made.mkdir()
    return made


@pytest.mark.spec("E20")
async def test_a_model_call_is_an_attempt(world: World, place: Path):
    witness = AttemptWitness()
    trace = await target(world, model="moonshot/glm-4", method="api").invoke(
        attempt_at("say hello", place), witness
    )
    assert trace.answer == "Hello there."
    assert trace.usage and (trace.usage.input, trace.usage.output) == (100, 20)
    assert trace.cost_usd == pytest.approx(0.00014)
    assert trace.llm_calls == 1
    assert trace.duration_ms is not None
    assert trace.by and (trace.by.backend, trace.by.model) == ("moonshot", "glm-4")
    assert trace.by.method == "api"
    assert witness.messages[0].content == "Hello there."
    assert witness.costs == [trace.cost_usd]
    assert await open_workers(world) == []


@pytest.mark.parametrize("method", ["api", "agent"])
async def test_a_conversation_is_one_worker_that_remembers(world: World, place: Path, method: str):
    made = len(world.models.calls)
    witnesses = [AttemptWitness(), AttemptWitness()]
    talked_to = target(world, model="moonshot/glm-4", method=method)
    async with talked_to.conversation(attempt_at("", place)) as talk:
        first = await talk.invoke(attempt_at("say hello", place), witnesses[0])
        second = await talk.invoke(attempt_at("say hello", place), witnesses[1])
        assert len(await open_workers(world)) == 1
    assert (first.answer, second.answer) == ("Hello there.", "Hello there.")
    assert len(second.messages) == 1
    assert (first.cost_usd, second.cost_usd) == (pytest.approx(0.00014), pytest.approx(0.00014))
    assert witnesses[1].messages == {0: second.messages[0]}
    last = world.models.calls[-1].request
    assert last and len(world.models.calls) == made + 2
    assert "Hello there." in str(last), "what it has said itself"
    assert await open_workers(world) == []


@pytest.mark.spec("E20")
async def test_the_own_agent_works_in_the_attempts_directory(world: World, place: Path):
    witness = AttemptWitness()
    trace = await target(world, model="moonshot/glm-4", method="agent").invoke(
        attempt_at("make hello", place), witness
    )
    assert (place / "hello.txt").read_text() == "hi\n"
    assert trace.answer == "Written."
    (made,) = trace.calls
    assert made.id
    assert made.status == "ok"
    assert made.input == {"file_path": str(place / "hello.txt"), "content": "hi\n"}
    assert made.start_time and made.end_time and made.duration_ms is not None
    assert [message.content for message in trace.messages] == ["I write.", "Written."]
    assert trace.llm_calls == 2
    assert trace.messages == tuple(witness.messages.values())


async def test_a_rejected_permission_fails_the_attempt_and_is_named(world: World, place: Path):
    witness = AttemptWitness()
    worker = target(world, model="moonshot/glm-4", method="agent")
    with pytest.raises(TargetError, match=r"permission 'bash' \(echo ran > ran.txt\)") as caught:
        await worker.invoke(attempt_at("run it", place), witness)
    assert (caught.value.kind, caught.value.retryable) == ("permission_denied", False)
    (decision,) = witness.decisions
    assert (decision.permission, decision.patterns) == ("bash", ("echo ran > ran.txt",))
    assert decision.decision == "reject"
    assert not (place / "ran.txt").exists()
    assert await open_workers(world) == []


@pytest.mark.parametrize("policy", ["once", "always"])
async def test_a_permission_is_granted_by_policy(world: World, place: Path, policy: str):
    worker = target(world, model="moonshot/glm-4", method="agent", permission_policy=policy)
    trace = await worker.invoke(attempt_at("run it", place), AttemptWitness())
    assert (place / "ran.txt").read_text() == "ran\n"
    assert [(d.permission, d.decision) for d in trace.permissions] == [("bash", policy)]


async def test_a_worker_that_fails_fails_the_attempt(world: World, place: Path):
    worker = target(world, model="moonshot/glm-4", method="api")
    with pytest.raises(TargetError) as caught:
        await worker.invoke(attempt_at("be down", place), AttemptWitness())
    assert (caught.value.kind, caught.value.retryable) == ("auth_refused", False)
    assert await open_workers(world) == []


async def test_a_task_that_is_not_taken_says_why(world: World, place: Path):
    worker = target(world, subprovider="nobody")
    with pytest.raises(TargetError, match="unknown provider 'nobody'") as caught:
        await worker.invoke(attempt_at("say hello", place), AttemptWitness())
    assert (caught.value.kind, caught.value.retryable) == ("refused", False)


async def test_a_timeout_closes_the_worker(world: World, place: Path):
    worker = target(world, model="moonshot/glm-4", method="api", timeout_seconds=1.5)
    with pytest.raises(TargetError) as caught:
        await worker.invoke(attempt_at("never end", place), AttemptWitness())
    assert (caught.value.kind, caught.value.retryable) == ("timeout", False)
    assert await open_workers(world) == []


async def test_a_cancelled_attempt_closes_the_worker(world: World, place: Path):
    worker = target(world, model="moonshot/glm-4", method="api")
    async with anyio.create_task_group() as group:
        group.start_soon(worker.invoke, attempt_at("never end", place), AttemptWitness())
        while not await open_workers(world):  # noqa: ASYNC110 (asks the daemon each time)
            await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    assert await open_workers(world) == []


async def test_what_was_spent_until_it_was_cut_off_is_told(world: World, place: Path):
    witness = AttemptWitness()
    worker = target(world, model="moonshot/glm-4", method="agent")
    async with anyio.create_task_group() as group:
        group.start_soon(worker.invoke, attempt_at("begin and wait", place), witness)
        await world.models.at_gate("halfway")
        group.cancel_scope.cancel()
    # The second call was cut off before it said its price.
    assert witness.costs == [pytest.approx(0.00014), None]
    assert witness.warnings == []


@pytest.mark.parametrize(("limit", "own"), [(60.0, 57.0), (5.0, 5.0)])
async def test_a_worker_with_some_time_ends_by_itself_before_it_is_cut_off(
    place: Path, limit: float, own: float
):
    asked = list[SpawnRequest]()

    class Refusing:
        async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
            assert isinstance(request, SpawnRequest)
            asked.append(request)
            raise DaemonRefused("not today")

        def events(self, worker: str) -> AbstractAsyncContextManager[AsyncIterator[EventEnvelope]]:
            raise AssertionError(worker)

    spec = TargetSpec(name="worker", kind="goent", settings={"model": "moonshot/glm-4"})
    worker = GoentTarget(spec, lambda: nullcontext(Refusing()))
    with pytest.raises(TargetError, match="not today"):
        await worker.invoke(attempt_at("say hello", place, timeout_s=limit), AttemptWitness())
    assert [request.timeout_s for request in asked] == [own]


async def test_the_first_good_racer_wins_and_the_others_are_paid(world: World, place: Path):
    (place / "given.txt").write_text("kept\n")
    racing = target(
        world,
        method="agent",
        permission_policy="once",
        race=["deepseek/coder", {"model": "moonshot/glm-4"}],
    )
    witness, traces = AttemptWitness(), list[Trace]()

    async def attempt() -> None:
        traces.append(await racing.invoke(attempt_at("win the race", place), witness))

    async with anyio.create_task_group() as group:
        group.start_soon(attempt)
        await world.models.at_gate("won")
        while not witness.decisions:  # noqa: ASYNC110 (the other one is at its tool then)
            await anyio.sleep(0.02)
        world.models.open_gate("won")
    (trace,) = traces
    assert trace.answer == "Written."
    assert trace.by and trace.by.model == "glm-4"
    assert {path.name for path in place.iterdir()} == {"given.txt", "hello.txt"}
    (made,) = trace.calls
    assert made.input == {"file_path": str(place / "hello.txt"), "content": "hi\n"}
    assert trace.llm_calls == 3
    assert trace.cost_usd == witness.costs[-1] == pytest.approx(0.00042)
    assert [said.content for said in witness.messages.values()] == ["I write.", "Written."]
    assert await open_workers(world) == []


async def test_what_a_loser_was_cut_off_in_has_no_known_price(world: World, place: Path):
    racing = target(world, method="api", race=["deepseek/coder", {"model": "moonshot/glm-4"}])
    witness, traces = AttemptWitness(), list[Trace]()

    async def attempt() -> None:
        traces.append(await racing.invoke(attempt_at("be the first", place), witness))

    async with anyio.create_task_group() as group:
        group.start_soon(attempt)
        await world.models.at_gate("first")
        await world.models.at_gate("second")
        world.models.open_gate("first")
    assert traces[0].answer == "I am."
    assert traces[0].usage and traces[0].usage.input == 100
    assert (traces[0].cost_usd, witness.costs[-1]) == (None, None)
    assert witness.messages[0].content == "I am."


def test_of_racers_that_are_cut_off_the_messages_of_whoever_has_most_are_kept():
    witness, beside = AttemptWitness(), list[RacerObserver]()
    first, second = RacerObserver(witness, beside), RacerObserver(witness, beside)
    first.message(0, TracedMessage(role="assistant", content="a"))
    second.message(0, TracedMessage(role="assistant", content="b"))
    assert witness.messages[0].content == "a"
    second.message(1, TracedMessage(role="assistant", content="c"))
    first.message(0, TracedMessage(role="assistant", content="aa"))
    assert [said.content for said in witness.messages.values()] == ["b", "c"]


async def test_of_a_race_that_all_finish_every_cost_counts(world: World, place: Path):
    witness = AttemptWitness()
    racing = target(
        world, method="api", verify=["false"], race=[{"model": "moonshot/glm-4"}, "deepseek/coder"]
    )
    trace = await racing.invoke(attempt_at("say hello", place), witness)
    assert witness.costs[-1] == pytest.approx(0.00028)
    assert trace.answer == "Hello there."
    assert trace.llm_calls == 2
    assert trace.cost_usd == pytest.approx(0.00028)


@pytest.mark.spec("E20")
async def test_opencode_over_acp_works_in_the_attempts_own_checkout(world: World, place: Path):
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.invalid")
    (place / "given.txt").write_text("kept\n")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "baseline")):
        await anyio.run_process([*git, *command], cwd=place)
    worker = target(world, subprovider="moonshot/glm-4", method="acp", permission_policy="once")
    trace = await worker.invoke(attempt_at("leave a note", place, timeout_s=100), AttemptWitness())
    changed = await anyio.run_process(["git", "status", "--porcelain"], cwd=place)
    assert changed.stdout.decode().split() == ["??", "note.txt"]
    assert trace.answer == "Left."
    wrote, ran = trace.calls
    assert (wrote.tool, wrote.status) == ("write", "ok")
    assert wrote.input == {"filePath": str(place / "note.txt"), "content": "by acp\n"}
    assert ran.tool == "bash"
    assert ran.input == {"command": "false", "description": "fail"}
    assert [d.permission for d in trace.permissions] == ["bash"]
    assert trace.usage and trace.cost_usd
    assert await open_workers(world) == []


@pytest.mark.parametrize("names", [["glm-4"], ["glm-4", "kimi"]])
async def test_a_daemon_that_dies_fails_the_attempt_for_now(
    world: World, place: Path, names: list[str]
):
    models = [{"model": f"moonshot/{name}"} for name in names]
    who: dict[str, object] = {"race": models} if len(models) > 1 else {**models[0]}
    worker, caught = target(world, method="api", **who), list[TargetError]()

    async def attempt() -> None:
        with pytest.raises(TargetError) as error:
            await worker.invoke(attempt_at("never end", place), AttemptWitness())
        caught.append(error.value)

    async with anyio.create_task_group() as group:
        group.start_soon(attempt)
        while len(await open_workers(world)) < len(names):  # noqa: ASYNC110 (asks the daemon each time)
            await anyio.sleep(0.05)
        daemon = await world.daemon()
        assert daemon
        kill(daemon.pid)
    assert (caught[0].kind, caught[0].retryable) == ("daemon_gone", True)
    assert await open_workers(world) == []


@pytest.mark.spec("E20")
async def test_go_ent_eval_run_gives_cases_to_workers(world: World):
    (world.project / ".goent" / "targets.yaml").write_text(
        "targets:\n"
        "  - {name: bare, provider: goent, model: moonshot/glm-4, method: api}\n"
        "  - {name: own, provider: goent, model: moonshot/glm-4, method: agent}\n"
    )
    (world.project / "demo.eval.yaml").write_text(
        "tests:\n"
        "  - id: hello\n"
        "    input: say hello\n"
        "    assertions: [{type: contains, value: Hello}]\n"
        "    execution: {target: bare}\n"
        "  - id: file\n"
        "    input: make hello\n"
        "    assertions: [{type: tool-trajectory, mode: any_order, minimums: {edit: 1}}]\n"
        "    execution: {target: own}\n"
    )
    ended = await world.go_ent("eval", "run", "demo.eval.yaml", "--out", "out", "--json")
    assert ended.exit == 0, ended.err
    rows = read_rows(world.project / "out" / "index.jsonl").rows
    assert {(row.test_id, row.execution_status) for row in rows} == {
        ("hello", "ok"),
        ("file", "ok"),
    }
    assert all(row.cost_usd for row in rows)
    assert await open_workers(world) == []
