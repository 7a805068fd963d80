"""The gateway's HTTP, as a worker that has gone mad would use it, in both dialects."""

import logging
from collections.abc import AsyncGenerator

import anyio
import httpx2
import msgspec
import pytest
from http_talk import HUGE, bad_requests, dawdle, post, talk
from mutation import rounds
from witness import Witness

from goent.domain.settings import Backend
from goent.domain.types import Provider
from goent.gateway import loopback_server
from goent.gateway.gateway import WARM_BACKEND, Gateway
from goent.providers.call_plan import CallPlan, RetrySettings, plan_call
from goent.providers.connections import CallTimeouts, Connections
from goent.providers.upstream import Upstream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

OPENAI: dict[str, object] = {
    "model": "glm-4",
    "stream": True,
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
}
ANTHROPIC: dict[str, object] = {
    "model": "claude",
    "max_tokens": 100,
    "stream": False,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
}
BODIES = [msgspec.json.encode(body) for body in (OPENAI, ANTHROPIC)]
REST = {"openai": "chat/completions", "anthropic": "messages"}
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic"])


class Gate:
    def __init__(self, gateway: Gateway) -> None:
        self.port = gateway.port
        self.token = gateway.issue_token()
        gateway.bind(token=self.token, session="s", worker="w-1")
        self._gateway = gateway

    def headers(self, dialect: str) -> dict[str, str]:
        key = {"x-api-key": self.token, "anthropic-version": "2023-06-01"}
        bearer = {"authorization": f"Bearer {self.token}"}
        return {
            "host": f"127.0.0.1:{self.port}",
            "x-session-id": "s",
            "content-type": "application/json",
            **(key if dialect == "anthropic" else bearer),
        }

    async def serves(self) -> None:
        """A good client is answered, in both dialects."""
        async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
            for dialect, rest in REST.items():
                answer = await client.post(
                    f"{self._gateway.base_url(WARM_BACKEND)}/{rest}",
                    headers=self.headers(dialect),
                    content=BODIES[1],
                )
                assert answer.status_code == 200, answer.text


@pytest.fixture
async def gate(caplog: pytest.LogCaptureFixture) -> AsyncGenerator[Gate]:
    backends = {"glm": Backend(id="glm", base_url="http://127.0.0.1:9/v1", key_env="KEY")}

    def plan(_: str, backend: str, model: str) -> CallPlan:
        provider = Provider(name=backend, backend=backend, model=model)
        return plan_call(provider, (), backends, {"KEY": "sk-x"})

    async with (
        Connections.open(CallTimeouts(connect_s=1, read_s=1)) as connections,
        Gateway.open(
            Upstream(connections, Witness(), patience=RetrySettings(retries=0)), plan
        ) as gateway,
    ):
        gate = Gate(gateway)
        yield gate
        await gate.serves()
    faults = [r for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]
    assert not faults, caplog.text[-3000:]


@DIALECTS
async def test_no_request_that_went_bad_stops_the_next_one(gate: Gate, dialect: str) -> None:
    headers = gate.headers(dialect)
    for chance in rounds(f"gateway {dialect}"):
        backend = chance.choice((WARM_BACKEND, WARM_BACKEND, "glm"))
        for _ in range(4):
            path = f"/{backend}/{REST[dialect]}"
            reply = await talk(gate.port, *bad_requests(path, headers, BODIES, chance))
            assert reply.status != 500, reply
            assert reply.status in (0, 200) or len(reply.body) > 10, reply


@DIALECTS
async def test_what_is_refused_is_refused_with_the_reason(gate: Gate, dialect: str) -> None:
    good, body = gate.headers(dialect), BODIES[0]
    path = f"/{WARM_BACKEND}/{REST[dialect]}"
    key = "x-api-key" if dialect == "anthropic" else "authorization"
    for pieces, status, words in (
        ([post(path, {**good, key: "goent_x"}, body)], 401, b"this key"),
        ([post(path, {**good, key: "Bearer \xff"}, body)], 401, b"this key"),
        ([post(path, {**good, key: ""}, body)], 401, b"this key"),
        ([post(path, {**good, "host": "evil.example"}, body)], 403, b"evil.example"),
        ([post(path, {**good, "host": f"127.0.0.1:{gate.port}, x"}, body)], 403, b"not this"),
        ([post("/x/../etc", good, body)], 404, b"not offered"),
        ([post("/%ff%00/models", good, body)], 404, b"not offered"),
        ([post("/nobody/messages", good, body)], 404, b"no backend 'nobody'"),
        ([post(path, good, body, length="x")], 400, b"Invalid HTTP"),
        (
            [post(path, good, body).replace(b"\r\n\r\n", b"\r\n" + HUGE + b"\r\n")],
            431,
            b"longer than 65536 bytes",
        ),
        ([b"GET / HTTP/9.9\r\n\r\n"], 403, b"host ''"),
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9], 400, b"Invalid HTTP"),
    ):
        reply = await talk(gate.port, *pieces)
        assert reply.status == status and words in reply.body, (pieces[0][:200], reply)


@DIALECTS
async def test_whoever_dawdles_is_put_out(
    gate: Gate, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HEAD_S", "BODY_S"):
        monkeypatch.setattr(loopback_server, limit, 0.3)
    path, good = f"/{WARM_BACKEND}/{REST[dialect]}", gate.headers(dialect)
    whole = post(path, good, BODIES[0])

    async def sees(sent: bytes, status: int) -> None:
        reply = await dawdle(gate.port, sent)
        assert reply.status == status, (sent[-80:], reply)
        assert status != 408 or b"not complete within 0.3 s" in reply.body

    async with anyio.create_task_group() as tasks:
        for sent, status in (
            (b"", 408),
            (whole[:20], 408),
            (whole.partition(b"\r\n\r\n")[0], 408),
            (whole[:-5], 408),
            (post(path, good, BODIES[0], length="999999"), 408),
            (post(path, {**good, "host": "evil.example"}, b"x", length="9"), 403),
            (post(path, good, b"x", length="1") + whole[:30], 200),
        ):
            tasks.start_soon(sees, sent, status)


async def test_a_drop_now_and_then_does_not_keep_the_door_open(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HEAD_S", "BODY_S"):
        monkeypatch.setattr(loopback_server, limit, 0.4)
    async with await anyio.connect_tcp("127.0.0.1", gate.port) as stream:

        async def drip() -> None:
            await stream.send(b"POST / HTTP/1.1\r\n")
            while True:
                await stream.send(b"x: y\r\n")
                await anyio.sleep(0.05)

        with anyio.fail_after(20), pytest.raises(anyio.BrokenResourceError):
            await drip()


async def test_a_connection_that_waits_for_its_next_request_is_left_alone(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HEAD_S", "BODY_S"):
        monkeypatch.setattr(loopback_server, limit, 0.5)
    limits = httpx2.Limits(max_connections=1)
    async with httpx2.AsyncClient(trust_env=False, timeout=10, limits=limits) as client:
        url = f"http://127.0.0.1:{gate.port}/{WARM_BACKEND}/messages"
        ports = set[object]()
        for host in (f"127.0.0.1:{gate.port}", "evil.example") * 2:
            await anyio.sleep(0.6 if ports else 0)
            headers = {**gate.headers("anthropic"), "host": host}
            answer = await client.post(url, headers=headers, content=BODIES[1] * 1000)
            ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
        assert len(ports) == 1
