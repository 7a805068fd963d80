"""Lines, however they come; and those that are too long to keep, but not to answer."""

import time
import tracemalloc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goent.system.line_splitter import LineSplitter, OversizedLine


def split(chunks: list[bytes], limit: int) -> list[bytes | None]:
    splitter = LineSplitter(limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [
        None if isinstance(line, OversizedLine) else line for line in (*found, splitter.finish())
    ]


@settings(deadline=None)
@given(st.lists(st.binary().map(lambda text: text.replace(b"x", b"\n"))), st.integers(1, 20))
def test_the_lines_are_the_same_however_they_come(chunks: list[bytes], limit: int):
    whole = b"".join(chunks)
    expected = [line if len(line) <= limit else None for line in whole.split(b"\n")]
    assert split(chunks, limit) == expected
    assert split([bytes([byte]) for byte in whole], limit) == expected


def test_a_line_beyond_the_limit_is_not_kept():
    splitter = LineSplitter(10)
    chunk = b"x" * 1_000_000
    tracemalloc.start()
    found = [line for _ in range(50) for line in splitter.feed(chunk)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == []
    assert peak < 2_000_000
    long, after = splitter.feed(b"\nnext\n")
    assert isinstance(long, OversizedLine) and "50000000 bytes" in long.message
    assert after == b"next"


def test_a_long_line_costs_no_more_by_the_byte_than_a_short_one():
    def seconds(size: int) -> float:
        splitter, piece = LineSplitter(), b"x" * 4096
        began = time.process_time()
        for _ in range(size // len(piece)):
            splitter.feed(piece)
        splitter.feed(b"\n")
        return time.process_time() - began

    assert seconds(32 << 20) < 1.0, "quadratic: 8192 pieces of a growing line, 130 GB to copy"


def long(line: bytes, piece: int) -> OversizedLine:
    splitter = LineSplitter(100)
    for start in range(0, len(line), piece):
        assert splitter.feed(line[start : start + piece]) == []
    (found,) = splitter.feed(b"\n")
    assert isinstance(found, OversizedLine)
    return found


BULK = b'"params":{"text":"' + b'x\\",\\"id\\":7}' * 1000 + b'","id":8,"method":"no"}'


@pytest.mark.parametrize("piece", [1, 50, 700, 1_000_000])
@pytest.mark.parametrize(
    ("line", "asks"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"a",' + BULK + b"}", b"5"),
        (b'{ "method" : "a",' + BULK + b', "jsonrpc":"2.0" , "id" : "a\\"b" } \r', b'"a\\"b"'),
        (b'{"id":5,' + BULK + b',"method":"a"}', b"5"),
        (b'{"jsonrpc":"2.0","id":{"x":1},"method":"a",' + BULK + b"}", b"null"),
        (b'{"jsonrpc":"2.0","method":"a",' + BULK + b"}", b"null"),
        (b'{"jsonrpc":"2.0","id":5,' + BULK + b"}", b"null"),
        (b"{" + BULK + b"}", b"null"),
        (b"x" * 5000, b"null"),
    ],
)
def test_a_request_that_is_too_long_is_answered_under_its_own_id(
    line: bytes, asks: bytes, piece: int
):
    assert long(line, piece).request_id == asks


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "x"]), st.text() | st.integers()))
def test_what_is_made_out_of_a_long_line_is_what_stands_there(message: dict[str, object]):
    line = msgspec.json.encode({**message, "bulk": "x" * 2000})
    found = long(line, 300).members
    read = {name: msgspec.json.decode(value) for name, value in found.items()}
    assert read.items() <= message.items()
