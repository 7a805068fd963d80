"""OpenCode is told no once: it looks for reasons to call again, also in the words of an error."""

from collections.abc import AsyncGenerator, Mapping

import pytest
from contract_stage import KEY, World, contract_world, of_its_own

from goent.domain.types import Method
from goent.providers.call_plan import RetrySettings
from goent.testing.script import Case, Fault, Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

METHODS: tuple[Method, ...] = ("acp", "cli")
EACH = 1 + RetrySettings().retries  # calls that go-ent itself makes before it gives up


def failing(
    name: str, words: str, *, status: int = 500, after: int | None = None, code: str | None = None
) -> Case:
    fault = Fault(
        kind="status" if after is None else "error",
        status=status,
        message=words,
        code=code,
        retry_after=0,
        after=after,
    )
    return case(name, say("one two three four").having(chunk=4, fault=fault))


# By task: what the provider says, the kind of the failure, and how often it was asked.
TOLD: Mapping[str, tuple[str, str, int]] = {
    "storm": ("Too Many Requests: rate limit reached, try again later", "rate_limited", EACH),
    "crowd": ("Overloaded: 503 Service Unavailable", "provider_overloaded", EACH),
    "broken": ("502 Bad Gateway: upstream connect error", "provider_down", EACH),
    "odd": ("resource exhausted, server_error: retry your request", "provider_refused", 1),
    "locked": ("Error 500429: key unavailable", "auth_refused", 1),
    "midway": ("UNAVAILABLE: 503 internal error, rate limit", "provider_down", EACH),
}
SCRIPT = Script(
    providers={
        "moonshot": openai(
            failing("storm", TOLD["storm"][0], status=429),
            failing("crowd", TOLD["crowd"][0], status=503),
            failing("broken", TOLD["broken"][0], status=502),
            failing("odd", TOLD["odd"][0], status=400),
            failing("locked", TOLD["locked"][0], status=401),
            failing("midway", TOLD["midway"][0], after=2),
            models=tuple(of_its_own(task, method) for task in TOLD for method in METHODS),
            key=KEY,
        ),
        "local": openai(case(None, say("Hello.")), models=("small",)),
    }
)


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with contract_world(tmp_path_factory.mktemp("refusals"), SCRIPT) as world:
        yield world


@pytest.mark.spec("P38")
@pytest.mark.parametrize(("method", "tasks"), [("acp", tuple(TOLD)), ("cli", ("storm", "midway"))])
async def test_no_word_of_a_refusal_makes_opencode_call_again(
    world: World, method: Method, tasks: tuple[str, ...]
) -> None:
    begun = len(world.models.calls)
    workers = {
        task: await world.spawn(method, task, model=of_its_own(task, method)) for task in tasks
    }
    for task, worker in workers.items():
        words, kind, calls = TOLD[task]
        result = await world.ended(worker)
        assert result.failure and (result.failure.kind, result.state) == (kind, "failed"), task
        assert words in result.failure.message, "in full, as the provider said it"
        made = [call for call in world.models.calls[begun:] if call.case == task]
        assert len(made) == calls, (task, result.failure)
