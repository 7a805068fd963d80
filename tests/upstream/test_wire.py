"""Bytes from a provider: each wait has its own end, and nobody is read faster than he is heard."""

import datetime as dt
import ipaddress
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.tls import TLSListener
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from goent.providers.http_transport import PooledTransport, ProviderSocket

pytestmark = pytest.mark.anyio

MUCH = b"x" * (64 * 1024 * 1024)
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"

Serve = Callable[[SocketStream], Awaitable[None]]


@asynccontextmanager
async def _connected(serve: Serve) -> AsyncGenerator[ProviderSocket]:
    async def once(stream: SocketStream) -> None:
        async with stream:
            await serve(stream)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, once)
            wire = await ProviderSocket.connect("127.0.0.1", port, within_s=30)
            yield wire
            wire.close()
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_refused_connection_is_told_in_the_systems_words(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(httpx2.ConnectError, match=r"^Connection refused$"):
        await ProviderSocket.connect(host, port, within_s=30)


async def _echo(stream: SocketStream) -> None:
    async for piece in stream:
        await stream.send(piece)


async def test_a_short_patience_holds_after_a_long_one() -> None:
    async with _connected(_echo) as wire:
        await wire.write(b"one")
        assert await wire.read(60) == b"one"
        with anyio.fail_after(20), pytest.raises(httpx2.ReadTimeout):
            await wire.read(0.05)


async def test_a_long_patience_holds_after_a_short_one() -> None:
    async def late(stream: SocketStream) -> None:
        await stream.send(b"one")
        await stream.receive()
        await anyio.sleep(0.3)  # longer than the first patience
        await stream.send(b"two")

    async with _connected(late) as wire:
        with anyio.fail_after(20):
            while not wire.has_pending_data:  # noqa: ASYNC110 (it has come, or comes)
                await anyio.sleep(0.01)
        assert await wire.read(0.2) == b"one"
        await wire.write(b"go on")
        assert await wire.read(60) == b"two"


async def test_an_end_is_told_and_so_is_a_break() -> None:
    async def leave(stream: SocketStream) -> None:
        if await stream.receive() == b"break":
            raw = stream.extra(SocketAttribute.raw_socket)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with _connected(leave) as wire:
        await wire.write(b"end")
        assert await wire.read(30) == b""
        assert wire.has_pending_data
    async with _connected(leave) as wire:
        await wire.write(b"break")
        with pytest.raises(httpx2.ReadError):
            await wire.read(30)


async def test_a_provider_waits_for_a_slow_reader_and_nothing_is_lost() -> None:
    sent = anyio.Event()

    async def flood(stream: SocketStream) -> None:
        await stream.send(MUCH)
        sent.set()

    async with _connected(flood) as wire:
        with anyio.move_on_after(0.5):
            await sent.wait()
        assert not sent.is_set()
        heard = 0
        while piece := await wire.read(30):
            heard += len(piece)
        assert heard == len(MUCH)


async def test_a_provider_that_does_not_read_is_not_written_to_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # what it never accepts, it never reads
        wire = await ProviderSocket.connect("127.0.0.1", deaf.getsockname()[1], within_s=30)
        with anyio.fail_after(20), pytest.raises(httpx2.WriteTimeout):
            await wire.write(MUCH, 0.1)
        wire.close()


async def test_a_cancelled_reader_leaves_the_rest_to_the_next() -> None:
    async with _connected(_echo) as wire:
        with anyio.move_on_after(0.05):
            await wire.read(60)
        await wire.write(b"one")
        assert await wire.read(30) == b"one"


async def test_a_connection_that_was_closed_is_not_used_again() -> None:
    closed = anyio.Event()

    async def once(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(ANSWER)
        closed.set()

    direct = PooledTransport(kept=2, keep_s=60)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        httpx2.AsyncClient(transport=direct) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, once)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
        for _ in range(3):
            closed = anyio.Event()
            assert (await client.get(url)).text == "hi"
            await closed.wait()
        tasks.cancel_scope.cancel()


async def test_over_tls_a_certificate_that_is_not_trusted_is_refused(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate)

    async def answer(stream: anyio.abc.ByteStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(ANSWER)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        url = f"https://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(TLSListener(listener, server, standard_compatible=False).serve, answer)
            trusted = ssl.create_default_context(cafile=certificate)
            async with httpx2.AsyncClient(
                transport=PooledTransport(kept=2, keep_s=60, trusted=trusted)
            ) as ours:
                assert (await ours.get(url)).text == "hi"
            async with httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=60)) as strange:
                with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await strange.get(url)
            tasks.cancel_scope.cancel()


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a provider")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "provider.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
