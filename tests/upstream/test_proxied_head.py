"""The head of an answer that comes by way of a proxy: it has one deadline as well."""

from contextlib import suppress

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from goent.domain.errors import ProviderTimeout
from goent.domain.types import Secret
from goent.providers.connections import CallTimeouts, Connections, ModelCall

pytestmark = pytest.mark.anyio

CALL = ModelCall(
    backend="far",
    dialect="openai",
    method="GET",
    url="http://provider.invalid/v1/models",
    headers=(),
    body=b"",
    key=Secret("sk-x"),
)


async def test_informational_replies_do_not_move_the_deadline(monkeypatch: pytest.MonkeyPatch):
    async def flood(stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError):
            async with stream:
                for _ in range(100):
                    await stream.send(b"HTTP/1.1 102 Processing\r\n\r\n")
                    await anyio.sleep(0.05)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as proxy,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(proxy.serve, flood)
        port = proxy.extra(SocketAttribute.local_port)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        timeouts = CallTimeouts(connect_s=0.2, read_s=0.2, write_s=0.1)
        async with Connections.open(timeouts) as connections:
            with anyio.fail_after(3), pytest.raises(ProviderTimeout):
                async with connections.send(CALL):
                    pass
        tasks.cancel_scope.cancel()
