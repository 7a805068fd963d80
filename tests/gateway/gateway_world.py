"""A gateway between a client and scripted providers."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
from fake_provider import FakeProvider
from witness import Witness

from goent.domain.money import FinishedCall
from goent.domain.settings import Backend
from goent.domain.types import Provider
from goent.gateway.gateway import Gateway
from goent.providers.call_plan import CallPlan, RetrySettings, plan_call
from goent.providers.connections import CallTimeouts, Connections
from goent.providers.gateway_errors import unmask_retry_words
from goent.providers.provider_health import CircuitBreakers
from goent.providers.upstream import Upstream

KEY = "sk-real-0123456789abcdefghij"
OTHER_KEY = "sk-other-0123456789abcdefghij"


@dataclass
class World:
    """`provider` is behind the backends `glm` and `anth`, `other` behind the fallbacks."""

    gateway: Gateway
    provider: FakeProvider
    other: FakeProvider
    client: httpx2.AsyncClient
    token: str
    backends: dict[str, Backend]
    environ: dict[str, str]
    fallbacks: list[Provider]
    witness: Witness
    upstream: Upstream

    @property
    def calls(self) -> list[FinishedCall]:
        return self.witness.calls

    def headers(self, session: str = "s1", parent: str | None = None) -> dict[str, str]:
        extra = {"x-parent-session-id": parent} if parent else {}
        return {"authorization": f"Bearer {self.token}", "x-session-id": session, **extra}

    def url(self, rest: str = "chat/completions", backend: str = "glm") -> str:
        return f"{self.gateway.base_url(backend)}/{rest}"

    def plan(self, worker: str, backend: str, model: str) -> CallPlan:
        assert worker
        provider = Provider(name=f"{backend}/{model}", backend=backend, model=model)
        return plan_call(provider, self.fallbacks, self.backends, self.environ)


def told(answer: httpx2.Response) -> str:
    """The message of a refusal, as the driver reads it."""
    return unmask_retry_words(answer.json()["error"]["message"])


SPARE = Provider(name="spare", backend="spare", model="spare-1")
SPARE_ANTHROPIC = Provider(name="claude", backend="spare-anth", model="claude-1")


@asynccontextmanager
async def open_world(witness: Witness | None = None) -> AsyncGenerator[World]:
    witness = witness or Witness()
    environ = {"GLM_KEY": KEY, "ANTH_KEY": KEY, "SPARE_KEY": OTHER_KEY}
    backends: dict[str, Backend] = {}
    fallbacks: list[Provider] = []

    def plan(worker: str, backend: str, model: str) -> CallPlan:
        return world.plan(worker, backend, model)

    async with (
        FakeProvider.open() as provider,
        FakeProvider.open() as other,
        httpx2.AsyncClient(trust_env=False) as client,
        Connections.open(CallTimeouts(connect_s=10, read_s=1, hurried_s=0.6)) as connections,
    ):
        own, spare = provider.base_url, other.base_url
        backends |= {
            "glm": Backend(id="glm", base_url=own, key_env="GLM_KEY"),
            "anth": Backend(id="anth", dialect="anthropic", base_url=own, key_env="ANTH_KEY"),
            "spare": Backend(id="spare", base_url=spare, key_env="SPARE_KEY"),
            "spare-anth": Backend(
                id="spare-anth", dialect="anthropic", base_url=spare, key_env="SPARE_KEY"
            ),
        }
        upstream = Upstream(
            connections,
            witness,
            healths=CircuitBreakers(),
            patience=RetrySettings(retries=0, first_wait_s=0.01),
        )
        async with Gateway.open(upstream, plan) as gateway:
            token = gateway.issue_token()
            gateway.bind(token=token, session="s1", worker="w1")
            world = World(
                gateway=gateway,
                provider=provider,
                other=other,
                client=client,
                token=token,
                backends=backends,
                environ=environ,
                fallbacks=fallbacks,
                witness=witness,
                upstream=upstream,
            )
            yield world
