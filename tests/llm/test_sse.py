from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.providers.sse import SseEvent, SseSplitter

LINES = st.sampled_from(
    [b"data: one", b"data:two", b"data", b"event: e", b": comment", b"id: 7", b"", b"", b"x" * 40]
)
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n"]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


def events(splitter: SseSplitter, *pieces: bytes) -> list[SseEvent]:
    found = [event for piece in pieces for event in splitter.feed(piece)]
    return found + splitter.close()


def test_events_have_names_and_their_data_lines_are_joined():
    stream = b": hi\r\n\r\nevent: e\ndata: a\ndata:b\n\ndata: {}\r\n\r\nretry: 3\n\n"
    assert events(SseSplitter(), stream) == [SseEvent(b"e", b"a\nb"), SseEvent(b"", b"{}")]


def test_the_last_event_needs_no_empty_line():
    assert events(SseSplitter(), b"data: [DONE]") == [SseEvent(b"", b"[DONE]")]


def test_an_event_beyond_the_limit_is_dropped_and_the_next_one_is_not():
    splitter = SseSplitter(limit=10)
    stream = b"data: 0123456789\n\ndata: 01234\ndata: 56789\ndata: x\n\ndata: ok\n\n"
    assert events(splitter, stream) == [SseEvent(b"", b"ok")]
    assert splitter.dropped == 2


@pytest.mark.parametrize("begun", [b"", b"event: e\n", b"data: a\n", b"da", b"x" * 30 + b"\n"])
@pytest.mark.parametrize(
    "event",
    [
        b"data: x",
        b"data:  x ",
        b"data: ",
        b"data: x\r",
        b"data: \r",
        b"data: 0123456789",
        b"data:x",
    ],
)
def test_an_event_that_comes_by_itself_is_read_as_any_other(begun: bytes, event: bytes):
    stream = begun + event + b"\n\n"
    together, apart = SseSplitter(limit=16), SseSplitter(limit=16)
    found = events(together, begun, event + b"\n\n")
    assert found == events(apart, *(stream[at : at + 1] for at in range(len(stream))))
    assert together.dropped == apart.dropped


@given(STREAMS, st.lists(st.integers(0, 400)), st.sampled_from([12, 1000]))
def test_the_pieces_that_a_stream_comes_in_do_not_matter(
    stream: bytes, cuts: list[int], limit: int
):
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    whole, cut = SseSplitter(limit=limit), SseSplitter(limit=limit)
    assert events(cut, *pieces) == events(whole, stream)
    assert cut.dropped == whole.dropped


@given(st.lists(st.binary()))
def test_it_never_fails(pieces: list[bytes]):
    events(SseSplitter(limit=20), *pieces)
