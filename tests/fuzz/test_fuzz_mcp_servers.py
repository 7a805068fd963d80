"""Mutated words of an MCP server: what it offers and what it answers, into the agent."""

import msgspec
from msgspec import Raw
from mutation import mutated, rounds

from goent.agent.mcp.mcp_client import ToolNames
from goent.agent.mcp.mcp_messages import (
    MAX_DESCRIPTION,
    MAX_IMAGES,
    MAX_SCHEMA,
    MAX_TEXT_CHARS,
    ListToolsResult,
    outcome_of,
    read_offers,
)
from goent.rpc import json_rpc

TOOL = {
    "name": "t",
    "title": "T",
    "description": "does it",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "annotations": {"title": "x", "readOnlyHint": True},
}
RESULT = {
    "content": [
        {"type": "text", "text": "hi"},
        {"type": "image", "mimeType": "image/png", "data": "aGk="},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "x", "mimeType": "a/b"}},
    ],
    "structuredContent": {"result": "hi"},
    "isError": False,
    "resultType": "complete",
}
OFFERS = [msgspec.json.encode({"tools": [tool, tool]}) for tool in (TOOL, {"name": "bare"})]
RESULTS = [msgspec.json.encode(RESULT), msgspec.json.encode({"content": []})]
SHARE = 20  # nothing is started for a round


def heard(result: bytes) -> Raw | None:
    """As it gets past the connection, if it does."""
    try:
        return json_rpc.read_message(b'{"jsonrpc":"2.0","id":1,"result":%s}' % result).result
    except json_rpc.InvalidMessage:
        return None


def test_whatever_a_server_offers_only_what_vendors_take_gets_through():
    for chance in rounds("mcp offers", SHARE):
        raw = heard(mutated(OFFERS, chance))
        if raw is None:
            continue
        try:
            listed = msgspec.json.decode(raw, type=ListToolsResult)
        except (msgspec.DecodeError, RecursionError):
            continue
        offers, _ = read_offers(listed.tools)
        for offer in offers:
            schema = msgspec.json.decode(offer.schema, type=dict[str, Raw])
            assert bytes(schema["type"]) == b'"object"'
            assert bytes(schema["properties"])[:1] == b"{"
            assert len(bytes(offer.schema)) <= MAX_SCHEMA + 100
            assert offer.tool and len(offer.description) <= MAX_DESCRIPTION + 10
            name = ToolNames().name(0, "s", offer.tool)
            assert len(name) <= 64 and name.isascii() and name.replace("-", "_").isidentifier()


def test_whatever_a_server_answers_there_is_an_outcome_of_bounded_size():
    for chance in rounds("mcp results", SHARE):
        raw = heard(mutated(RESULTS, chance))
        if raw is None:
            continue
        try:
            done = outcome_of(raw)
        except (msgspec.DecodeError, RecursionError):  # said to make no sense
            continue
        assert done.text or done.images
        assert len(done.text) <= MAX_TEXT_CHARS + 200
        assert len(done.images) <= MAX_IMAGES
