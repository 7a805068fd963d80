import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw, Struct

from goent.rpc import json_rpc
from goent.rpc.json_rpc import InvalidParams, RpcError, decode_params


def refusal(line: bytes) -> tuple[int, bytes]:
    with pytest.raises(json_rpc.InvalidMessage) as caught:
        json_rpc.read_message(line)
    return caught.value.code, bytes(caught.value.id)


def code_of(line: bytes) -> int | None:
    try:
        json_rpc.read_message(line)
    except json_rpc.InvalidMessage as refused:
        return refused.code
    return None


@pytest.mark.spec("A03")
@pytest.mark.parametrize(
    "line",
    [
        b"{not json",
        b'{"jsonrpc":"2.0","method":"a","params":{"text":"\xff"}}',
        b"\xff\xfe",
        b'{"jsonrpc":"2.0"}{}',
        b"[1,2",
        b'{"jsonrpc":"2.0","id":01,"method":"a"}',
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","method":"a","params":' + b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_a_parse_error(line: bytes):
    assert refusal(line) == (-32700, b"null")


@pytest.mark.spec("A03")
@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"[1,2,3]", b"null"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"a"}]', b"null"),
        (b"[]", b"null"),
        (b"12", b"null"),
        (b'"text"', b"null"),
        (b"null", b"null"),
        (b"{}", b"null"),
        (b'{"jsonrpc":"2.0","id":7}', b"7"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', b"7"),
        (b'{"jsonrpc":"1.0","id":"x","method":"a"}', b'"x"'),
        (b'{"jsonrpc":2.0,"id":"x","method":"a"}', b'"x"'),
        (b'{"id":8,"method":"a"}', b"8"),
        (b'{"jsonrpc":"2.0","id":{},"method":"a"}', b"null"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"a"}', b"null"),
        (b'{"jsonrpc":"2.0","id":true,"method":"a"}', b"null"),
    ],
)
def test_json_that_is_no_request_is_refused_under_its_id_if_that_is_one(line: bytes, number: bytes):
    assert refusal(line) == (-32600, number)


def test_a_reply_is_read_even_if_its_sender_forgot_the_version():
    assert bytes(json_rpc.read_message(b'{"id":1,"result":null}').result) == b"null"


def test_half_an_emoji_is_mended_and_a_whole_one_kept():
    line = rb'{"jsonrpc":"2.0","method":"a","params":["\ud83d","\ud83d\ude00","\\ud83d","x\ude00"]}'
    params = decode_params(json_rpc.read_message(line).params, list[str])
    assert params == ["\ufffd", "😀", r"\ud83d", "x\ufffd"]


def test_a_newline_in_a_raw_part_does_not_break_the_line():
    line = json_rpc.notification_line("a", Raw(b'{\n  "x": "1\\n2"\n}'))
    assert line == b'{"jsonrpc":"2.0","method":"a","params":{"x":"1\\n2"}}\n'


def test_no_params_are_left_out():
    assert json_rpc.notification_line("a", None) == b'{"jsonrpc":"2.0","method":"a"}\n'


class Point(Struct):
    x: int
    y: int = 0


@pytest.mark.parametrize("absent", [b"", b"null", b"{}"])
def test_absent_params_are_an_empty_object(absent: bytes):
    with pytest.raises(InvalidParams, match="x: is missing"):
        decode_params(Raw(absent), Point)


@pytest.mark.parametrize("bad", [b'{"x":"1"}', b'{"x":1,"y":null}', b"[1]", b'{"x":' + b"[" * 9999])
def test_bad_params_say_which_field(bad: bytes):
    with pytest.raises(InvalidParams) as caught:
        decode_params(Raw(bad), Point)
    assert caught.value.code == -32602


def test_the_data_of_an_error_stands_on_the_wire_as_it_is():
    assert bytes(RpcError(1, "m", {"a": [1]}).data or b"") == b'{"a":[1]}'
    assert bytes(RpcError(1, "m", Raw(b'{"a": 1}')).data or b"") == b'{"a": 1}'


ids = st.one_of(
    st.integers().map(lambda number: str(number).encode()),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: repr(number).encode()),
    st.text().map(msgspec.json.encode),
    st.just(b"null"),
    st.sampled_from([b"1e999", b"-0.0", b"1.50", b'"\\u0041"', b"9" * 400]),
)


@pytest.mark.spec("A01")
@settings(deadline=None)
@given(ids)
def test_an_id_is_echoed_to_the_byte(number: bytes):
    message = json_rpc.read_message(b'{"jsonrpc":"2.0","id": ' + number + b' ,"method":"a"}')
    assert (
        json_rpc.result_line(message.id, 1)
        == b'{"jsonrpc":"2.0","id":' + number + b',"result":1}\n'
    )


@pytest.mark.spec("A03")
@settings(deadline=None)
@given(st.binary())
def test_any_bytes_are_a_message_or_are_refused(line: bytes):
    assert code_of(line) in (None, -32700, -32600)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
members = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])


@pytest.mark.spec("A03")
@settings(deadline=None)
@given(st.dictionaries(members, json | st.just("2.0")))
def test_any_object_is_a_message_or_is_refused(message: dict[str, object]):
    assert code_of(msgspec.json.encode(message)) in (None, -32600)
