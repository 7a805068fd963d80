"""Requests on a line: what was said comes whole, however it comes, and no answer is another's."""

import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from goent.providers.http_transport import (
    Http1Connection,
    PooledTransport,
    ProviderSocket,
    join_chunks,
)

pytestmark = pytest.mark.anyio

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SHORT = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
REQUEST = httpx2.Request("POST", "http://provider/v1", content=b"a question")
LIKE_CHUNKS = (b"5\r\nhello\r\n", b"0\r\n\r\n", b"\r\n", b"data: {}\n\n", b"a", b"x" * 300)


class Told(ProviderSocket):
    """A wire on which these pieces come, and then the end. Where one is None, nothing comes."""

    def __init__(self, pieces: Iterable[bytes | None], *, deaf: bool = False) -> None:
        super().__init__()
        self._pieces = iter(pieces)
        self._deaf = deaf

    async def read(self, within_s: float | None = None) -> bytes:
        if (piece := next(self._pieces, b"")) is None:
            await anyio.sleep_forever()
        return piece or b""

    async def write(self, data: bytes, within_s: float | None = None) -> None:
        if self._deaf:
            raise httpx2.WriteError("nobody listens")

    def close(self) -> None: ...


async def _heard(line: Http1Connection) -> bytes:
    await line.send_request(REQUEST)
    said = b""
    while piece := await line.read_piece():
        said += piece
    return said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"5\r\nhello\r\n", b"hello"),
        (b"0005\r\nhello\r\nA\r\n0123456789\r\n", b"hello0123456789"),
        (b"", b""),
        (b"5\r\nhello", b""),
        (b"5\r\nhello\r\n6\r\nwor", b""),
        (b"5;name=value\r\nhello\r\n", b""),
        (b"5\r\nhello\r\n0\r\n\r\n", b""),
        (b"4\r\nhello\r\n", b""),
        (b"-5\r\nhello\r\n", b""),
        (b"5\nhello\n", b""),
    ],
)
async def test_only_whole_chunks_are_read_without_h11(data: bytes, said: bytes):
    assert join_chunks(data) == said


async def test_a_body_is_the_same_however_its_bytes_come():
    for seed in range(300):
        chance = random.Random(seed)
        said = chance.choices(LIKE_CHUNKS, k=chance.randint(1, 12))
        framed = [_framed(piece, chance) for piece in said]
        end = chance.choice((b"0\r\n\r\n", b"000\r\ntrailer: value\r\n\r\n"))
        sent = HEAD + b"".join(framed) + end
        line = Http1Connection(Told([HEAD, *framed, end] if seed % 3 == 0 else _cut(sent, chance)))
        assert await _heard(line) == b"".join(said), seed
        assert line.finish(), seed


def _framed(piece: bytes, chance: random.Random) -> bytes:
    size = chance.choice((b"%x", b"%X", b"00%x", b"%x;name=value")) % len(piece)
    return size + b"\r\n" + piece + b"\r\n"


def _cut(sent: bytes, chance: random.Random) -> list[bytes]:
    cuts = sorted(chance.choices(range(1, len(sent)), k=chance.randint(0, 20)))
    ends = zip([0, *cuts], [*cuts, len(sent)], strict=True)
    return [piece for begin, end in ends if (piece := sent[begin:end])]


async def test_an_answer_that_breaks_off_says_so_after_what_was_said():
    for rest in (b"", b"no chunk\r\n"):
        line = Http1Connection(Told([HEAD, b"5\r\nhello\r\n", b"5\r\nworld\r\n", rest]))
        await line.send_request(REQUEST)
        assert [await line.read_piece(), await line.read_piece()] == [b"hello", b"world"]
        with pytest.raises(httpx2.RemoteProtocolError):
            await line.read_piece()
        assert not line.finish()


async def test_a_reader_who_gave_up_in_the_middle_of_a_size_can_go_on():
    line = Http1Connection(Told([HEAD, b"5\r\nhello\r\n", b"1", None, b"5\r\nworld\r\n"]))
    await line.send_request(REQUEST)
    assert await line.read_piece() == b"hello"
    with anyio.move_on_after(0.05):
        await line.read_piece()
    assert await line.read_piece() == b"world\r\n", "the beginning of 21 bytes"


async def test_a_provider_that_hangs_up_without_an_answer_is_told_of():
    with pytest.raises(httpx2.RemoteProtocolError, match="without an answer"):
        await Http1Connection(Told([])).send_request(REQUEST)


async def test_what_is_no_http_is_told_of():
    with pytest.raises(httpx2.RemoteProtocolError):
        await Http1Connection(Told([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"])).send_request(REQUEST)


async def test_hints_before_the_answer_are_passed_over():
    assert (
        await _heard(Http1Connection(Told([b"HTTP/1.1 103 Early Hints\r\n\r\n" + SHORT]))) == b"hi"
    )


async def test_hints_without_an_end_are_given_up():
    hints = [b"HTTP/1.1 102 Processing\r\n\r\n" * 10] * 100
    with pytest.raises(httpx2.RemoteProtocolError, match="32 informational replies"):
        await Http1Connection(Told([*hints, SHORT])).send_request(REQUEST)


@pytest.mark.parametrize("drop", [b"HTTP/1.1 102 Processing\r\n\r\n", b"x"])
async def test_the_head_of_an_answer_has_one_deadline_whatever_drips_in(drop: bytes):
    async def drip(stream: SocketStream) -> None:
        with suppress(anyio.BrokenResourceError):
            async with stream:
                await stream.send(b"HTTP/1.1 102 Processing\r\nx: ")
                for _ in range(30):
                    await stream.send(drop)
                    await anyio.sleep(0.1)

    patience = {"timeout": {"connect": 5, "read": 0.3, "write": 5}}
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
        httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=60)) as client,
    ):
        tasks.start_soon(listener.serve, drip)
        url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/"
        with anyio.fail_after(1.5), pytest.raises(httpx2.ReadTimeout):
            await client.send(httpx2.Request("GET", url, extensions=patience))
        tasks.cancel_scope.cancel()


async def test_who_answers_without_reading_is_heard_and_not_asked_again():
    line = Http1Connection(Told([SHORT], deaf=True))
    assert await _heard(line) == b"hi"
    assert not line.finish()


async def test_what_follows_an_answer_is_not_taken_for_the_next_one():
    line = Http1Connection(Told([SHORT + SHORT]))
    assert await _heard(line) == b"hi"
    assert not line.finish()


@asynccontextmanager
async def _provider(answer: bytes) -> AsyncGenerator[tuple[str, list[SocketStream]]]:
    """Its address, and the connections that were made to it."""
    made: list[SocketStream] = []

    async def serve(stream: SocketStream) -> None:
        made.append(stream)
        async with stream:
            async for _ in stream:
                await stream.send(answer)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/", made
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("answer", "keep_s", "connections"),
    [
        (SHORT, 60, 1),
        (HEAD + b"2\r\nhi\r\n0\r\n\r\n", 60, 1),
        (SHORT, -1, 3),
        (SHORT.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), 60, 3),
    ],
)
async def test_a_line_is_used_again_while_it_is_good(answer: bytes, keep_s: int, connections: int):
    async with (
        _provider(answer) as (url, made),
        httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=keep_s)) as client,
    ):
        for _ in range(3):
            assert (await client.get(url)).text == "hi"
        assert len(made) == connections


async def test_no_more_lines_are_kept_than_asked_for():
    async with (
        _provider(SHORT) as (url, made),
        httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=60)) as client,
    ):
        for _ in range(2):
            async with AsyncExitStack() as held:
                for _ in range(4):
                    answer = await held.enter_async_context(client.stream("GET", url))
                    assert isinstance(answer.stream, httpx2.AsyncByteStream)
                    assert [piece async for piece in answer.stream] == [b"hi"]
        assert len(made) == 4 + 2


async def test_an_answer_that_was_left_early_takes_its_line_with_it():
    async with (
        _provider(HEAD + b"2\r\nhi\r\n") as (url, made),
        httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=60)) as client,
    ):
        for _ in range(2):
            async with client.stream("GET", url) as answer:
                assert answer.status_code == 200
        assert len(made) == 2


async def test_an_address_that_is_none_of_http_is_refused():
    async with httpx2.AsyncClient(transport=PooledTransport(kept=2, keep_s=60)) as client:
        with pytest.raises(httpx2.UnsupportedProtocol):
            await client.get("ftp://127.0.0.1/")
