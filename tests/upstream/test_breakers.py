"""What calls tell of a provider, on real sockets: who is left alone, tried out, probed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from fake_provider import FakeProvider, Script, openai_pieces
from msgspec.structs import replace
from witness import Witness

from goent.domain.errors import AuthRefused, ProviderDown, RateLimited
from goent.domain.settings import Backend, HealthSettings, Settings
from goent.domain.types import Provider
from goent.providers.call_plan import CallPlan, InboundCall, RetrySettings, plan_call
from goent.providers.call_translation import StreamPiece
from goent.providers.connections import CallTimeouts, Connections
from goent.providers.model_messages import TextPiece
from goent.providers.provider_health import BreakerBounds, CircuitBreakers, HealthProbe, account_id
from goent.providers.upstream import Upstream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

GLM = Provider(name="glm", backend="glm", model="m")
SPARE = Provider(name="spare", backend="spare", model="m")
BODY = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
GOOD = Script(openai_pieces())
BAD = Script([b'{"error":{"message":"out of order"}}'], status=503, content_type="application/json")


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Ring:
    """Two providers, and one way to ask them."""

    glm: FakeProvider
    spare: FakeProvider
    upstream: Upstream
    healths: CircuitBreakers
    clock: Clock
    settings: Settings
    environ: dict[str, str]
    probe: HealthProbe
    witness: Witness

    def course(self, *fallbacks: Provider) -> CallPlan:
        return plan_call(GLM, fallbacks, self.settings.backends, self.environ)

    async def ask(self, *fallbacks: Provider) -> str:
        said: list[StreamPiece] = []

        async def take(pieces: Sequence[StreamPiece]) -> None:
            said.extend(pieces)

        order = InboundCall(worker="w", backend="glm", model="m", dialect="openai", body=BODY)
        await self.upstream.stream(order, self.course(*fallbacks), take)
        chunks = [chunk for piece in said for chunk in piece.chunks]
        return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextPiece))

    async def break_down(self) -> None:
        """Until the breaker is open."""
        self.glm.script = BAD
        for _ in range(2):
            with pytest.raises(ProviderDown):
                await self.ask()
        self.glm.seen.clear()


@pytest.fixture
async def ring() -> AsyncGenerator[Ring]:
    async with AsyncExitStack() as held:
        glm = await held.enter_async_context(FakeProvider.open())
        spare = await held.enter_async_context(FakeProvider.open())
        timeouts = CallTimeouts(connect_s=5, read_s=5, hurried_s=5)
        connections = await held.enter_async_context(Connections.open(timeouts))
        clock, environ = Clock(), {"GLM_KEY": "sk-one", "SPARE_KEY": "sk-two"}
        settings = Settings(
            project=Path("/"),
            providers=(GLM, SPARE),
            backends={
                "glm": Backend(id="glm", base_url=glm.base_url, key_env="GLM_KEY"),
                "spare": Backend(id="spare", base_url=spare.base_url, key_env="SPARE_KEY"),
            },
            health=HealthSettings(probe=True, check_interval=1),
        )
        healths = CircuitBreakers(
            account=lambda name: account_id(settings.backends[name], environ),
            bounds=lambda: BreakerBounds(failures=2, first_pause_s=60),
            clock=clock,
        )
        patience = RetrySettings(retries=0)
        witness = Witness()
        upstream = Upstream(connections, witness, healths=healths, patience=patience, clock=clock)
        probe = HealthProbe(
            connections, healths, settings=lambda: settings, environ=lambda: environ, clock=clock
        )
        glm.script, spare.script = GOOD, GOOD
        yield Ring(glm, spare, upstream, healths, clock, settings, environ, probe, witness)


@pytest.mark.spec("P36")
async def test_one_that_is_down_is_asked_by_nobody_until_its_pause_is_over(ring: Ring) -> None:
    await ring.break_down()
    assert ring.healths.condition(GLM).state == "down"
    assert await ring.ask(SPARE) == "hello"
    with pytest.raises(ProviderDown) as told:
        await ring.ask()
    assert "glm is down until" in str(told.value)
    assert "go-ent providers reset glm" in str(told.value)
    assert not ring.glm.seen, "nobody asked it"


async def test_one_call_tries_it_out_while_the_others_go_elsewhere(ring: Ring) -> None:
    await ring.break_down()
    ring.clock.now += 61
    ring.glm.script = slow = Script(openai_pieces("back"), waits=0)
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await ring.ask(SPARE))

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(20):
            await slow.reached.wait()
        assert ring.healths.calls_in_flight(GLM) == 1
        await ask()
        await ask()
        slow.go_on.set()
    assert answers == ["hello", "hello", "back"]
    assert len(ring.glm.seen) == 1
    assert ring.healths.calls_in_flight(GLM) == 0
    assert await ring.ask(SPARE) == "back", "it is closed again"


async def test_a_call_with_nobody_else_to_ask_waits_for_what_the_trial_finds(ring: Ring) -> None:
    await ring.break_down()
    ring.clock.now += 61
    ring.glm.script = slow = Script(openai_pieces("back"), waits=0)
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await ring.ask())

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        with anyio.fail_after(20):
            await slow.reached.wait()
        group.start_soon(ask)
        with anyio.fail_after(20):
            while not ring.witness.notices:  # noqa: ASYNC110 (a list tells nobody)
                await anyio.sleep(0.02)
        assert len(ring.glm.seen) == 1, "there is one trial at a time"
        slow.go_on.set()
    assert answers == ["back", "back"]


async def test_a_trial_whose_asker_leaves_is_free_for_the_next(ring: Ring) -> None:
    await ring.break_down()
    ring.clock.now += 61
    ring.glm.script = slow = Script(openai_pieces("back"), waits=0)
    async with anyio.create_task_group() as group:
        group.start_soon(ring.ask)
        with anyio.fail_after(20):
            await slow.reached.wait()
        group.cancel_scope.cancel()
    ring.glm.script = Script(openai_pieces("back"))
    assert ring.healths.calls_in_flight(GLM) == 0
    assert await ring.ask(SPARE) == "back"


@pytest.mark.spec("P38")
async def test_an_answer_with_the_last_of_a_limit_sends_the_next_call_elsewhere(
    ring: Ring,
) -> None:
    limits = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}
    ring.glm.script = Script(openai_pieces("last"), headers=limits)
    assert await ring.ask(SPARE) == "last"
    seen = ring.healths.condition(GLM)
    assert (seen.state, seen.until, seen.time_is_announced) == (
        "limited",
        ring.clock.now + 360,
        True,
    )
    assert await ring.ask(SPARE) == "hello"
    with pytest.raises(RateLimited):
        await ring.ask()
    assert len(ring.glm.seen) == 1
    ring.clock.now += 361
    assert await ring.ask(SPARE) == "last"


async def test_another_key_is_asked_at_once(ring: Ring) -> None:
    refused = b'{"error":{"message":"bad key","code":"invalid_api_key"}}'
    ring.glm.script = Script([refused], status=401, content_type="application/json")
    with pytest.raises(AuthRefused):
        await ring.ask(SPARE)
    assert ring.healths.condition(GLM).state == "refused"
    assert await ring.ask(SPARE) == "hello", "it is passed over, and shown as refused"
    ring.glm.script = GOOD
    assert await ring.ask() == "hello", "alone, it is tried: the account may have been mended"
    ring.glm.script = Script([refused], status=401, content_type="application/json")
    with pytest.raises(AuthRefused):
        await ring.ask()
    ring.environ["GLM_KEY"] = "sk-another"
    with anyio.fail_after(10):
        while ring.healths.condition(GLM).state != "unknown":  # noqa: ASYNC110 (half a second)
            await anyio.sleep(0.05)


async def test_a_refused_key_is_asked_again_after_a_minute(ring: Ring) -> None:
    """It may have been mended a second later, where it was made."""
    refused = b'{"error":{"message":"bad key","code":"invalid_api_key"}}'
    ring.glm.script = Script([refused], status=401, content_type="application/json")
    with pytest.raises(AuthRefused, match="go-ent providers reset glm"):
        await ring.ask(SPARE)
    ring.glm.script = GOOD
    asked = len(ring.glm.seen)
    ring.clock.now += 59
    assert await ring.ask(SPARE) == "hello" and len(ring.glm.seen) == asked
    assert "go-ent providers reset glm" in ring.healths.condition(GLM).reason
    ring.clock.now += 2
    assert await ring.ask(SPARE) == "hello" and len(ring.glm.seen) == asked + 1
    assert ring.healths.condition(GLM).state == "healthy"


@pytest.mark.spec("P36")
async def test_a_probe_finds_out_that_one_is_back(ring: Ring) -> None:
    await ring.break_down()
    await ring.probe.probe_once(ring.settings)
    assert not ring.glm.seen, "not before its pause is over"
    assert [seen.path for seen in ring.spare.seen] == ["/v1/models"], "of it nothing was known"
    assert ring.healths.condition(SPARE).state == "healthy"
    ring.clock.now += 61
    ring.glm.script = Script([b"[]"], content_type="application/json")
    await ring.probe.probe_once(ring.settings)
    assert [(seen.method, seen.path) for seen in ring.glm.seen] == [("GET", "/v1/models")]
    assert ring.healths.condition(GLM).state == "healthy"
    await ring.probe.probe_once(ring.settings)
    assert len(ring.glm.seen) == 1, "who is well is not asked"


@pytest.mark.parametrize(
    ("status", "state"), [(503, "failing"), (401, "refused"), (404, "unknown"), (429, "limited")]
)
async def test_a_probe_tells_what_it_finds(ring: Ring, status: int, state: str) -> None:
    ring.glm.script = Script([b"{}"], status=status, content_type="application/json")
    await ring.probe.probe_once(ring.settings)
    assert ring.healths.condition(GLM).state == state
    assert ring.healths.calls_in_flight(GLM) == 0


async def test_nobody_is_probed_unless_the_settings_say_so(ring: Ring) -> None:
    wanted = ring.settings
    ring.settings = replace(wanted, health=HealthSettings(probe=False))
    probe = HealthProbe(
        ring.upstream.connections,
        ring.healths,
        settings=lambda: ring.settings,
        environ=lambda: ring.environ,
        clock=ring.clock,
    )
    with anyio.move_on_after(0.2):
        await probe.run()
    assert not ring.glm.seen
    ring.settings = wanted
    async with anyio.create_task_group() as group:
        group.start_soon(probe.run)
        with anyio.fail_after(10):
            while not ring.glm.seen:  # noqa: ASYNC110 (a socket tells nobody else)
                await anyio.sleep(0.02)
        group.cancel_scope.cancel()
