"""A gateway between a client and a scripted provider."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
from fake_provider import FakeProvider

from goent.domain.ports import CallMade
from goent.domain.settings import Backend
from goent.gateway.server import Gateway
from goent.upstream.forward import Timeouts

KEY = "sk-real-0123456789abcdefghij"


@dataclass
class World:
    gateway: Gateway
    provider: FakeProvider
    client: httpx2.AsyncClient
    token: str
    backends: dict[str, Backend]
    environ: dict[str, str]
    calls: list[CallMade] = field(default_factory=list[CallMade])

    def headers(self, session: str = "s1", parent: str | None = None) -> dict[str, str]:
        extra = {"x-parent-session-id": parent} if parent else {}
        return {"authorization": f"Bearer {self.token}", "x-session-id": session, **extra}

    def url(self, rest: str = "chat/completions", backend: str = "glm") -> str:
        return f"{self.gateway.base_url(backend)}/{rest}"


@asynccontextmanager
async def open_world() -> AsyncGenerator[World]:
    calls: list[CallMade] = []
    environ = {"GLM_KEY": KEY, "ANTH_KEY": KEY}

    async def on_call(call: CallMade) -> None:
        calls.append(call)

    async with FakeProvider.open() as provider, httpx2.AsyncClient(trust_env=False) as client:
        backends = {
            "glm": Backend(id="glm", base_url=provider.base_url, key_env="GLM_KEY"),
            "anth": Backend(
                id="anth", dialect="anthropic", base_url=provider.base_url, key_env="ANTH_KEY"
            ),
        }
        async with Gateway.open(
            backends=lambda: backends,
            environ=lambda: environ,
            on_call=on_call,
            timeouts=Timeouts(connect_s=1, read_s=0.5),
        ) as gateway:
            token = gateway.issue_token()
            gateway.bind(token=token, session="s1", worker="w1")
            yield World(gateway, provider, client, token, backends, environ, calls)
