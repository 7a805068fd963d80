"""The bytes of a stream on the client's side: framed as HTTP wants it, for whoever reads them."""

import anyio
import h11
import pytest
from anyio.abc import SocketStream
from fake_provider import Script, openai_pieces
from gateway_world import World

pytestmark = pytest.mark.anyio

BODY = b'{"model":"glm-4.7","stream":true,"messages":[]}'
WORDS = [openai_pieces(f"word {number} ")[0] for number in range(50)]
MUCH = 40 * 1024 * 1024  # bytes, more than sockets hold on their way


def _request(world: World, version: str) -> bytes:
    head = (
        f"POST /glm/chat/completions HTTP/{version}\r\nhost: 127.0.0.1:{world.gateway.port}\r\n"
        f"authorization: Bearer {world.token}\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    return head.encode() + BODY


async def _answer(stream: SocketStream, reader: h11.Connection) -> bytes:
    """As h11 reads it, which has to find nothing wrong with it."""
    said = b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            reader.receive_data(await stream.receive())
        elif isinstance(event, h11.Data):
            said += bytes(event.data)
    return said


async def test_a_stream_comes_in_chunks_and_its_connection_can_be_used_again(world: World):
    pieces = [*WORDS, *openai_pieces()]
    reader = h11.Connection(h11.CLIENT)
    async with await anyio.connect_tcp("127.0.0.1", world.gateway.port) as stream:
        for _ in range(2):
            world.provider.script = script = Script(pieces, waits=len(WORDS) // 2)
            reader.send(h11.Request(method="POST", target="/", headers=[("host", "gateway")]))
            reader.send(h11.EndOfMessage())
            await stream.send(_request(world, "1.1"))
            await script.reached.wait()
            script.go_on.set()
            assert await _answer(stream, reader) == b"".join(pieces)
            reader.start_next_cycle()


async def test_who_knows_no_chunks_gets_none(world: World):
    pieces = [*WORDS, *openai_pieces()]
    world.provider.script = Script(pieces)
    async with await anyio.connect_tcp("127.0.0.1", world.gateway.port) as stream:
        await stream.send(_request(world, "1.0"))
        heard = b"".join([piece async for piece in stream])
    head, _, body = heard.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == b"".join(pieces)


async def test_a_client_that_reads_slowly_slows_its_model_down_and_loses_nothing(world: World):
    word = openai_pieces("x" * 64 * 1024)[0]
    pieces = [*[word] * (MUCH // len(word)), *openai_pieces()]
    world.provider.script = script = Script(pieces, waits=len(pieces) - 1)
    async with world.client.stream(
        "POST", world.url(), content=BODY, headers=world.headers()
    ) as answer:
        with anyio.move_on_after(0.5):
            await script.reached.wait()
        assert not script.reached.is_set()
        script.go_on.set()
        assert await answer.aread() == b"".join(pieces)
