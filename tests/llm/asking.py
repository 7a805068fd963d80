"""Requests in few words, and their bodies."""

import msgspec
from msgspec import Raw

from goent.domain.types import Dialect
from goent.llm.codec import codec
from goent.llm.talk import Image, Message, ModelRequest, Reasoning, Text, Tool, ToolResult, ToolUse

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = Tool(name="read", description="Reads.", schema=Raw(msgspec.json.encode(SCHEMA)))
PIXEL = "iVBORw0KGgo="


def user(*parts: Text | Image | ToolResult) -> Message:
    return Message(role="user", parts=parts)


def model(*parts: Text | Reasoning | ToolUse) -> Message:
    return Message(role="assistant", parts=parts)


def asked(dialect: Dialect, body: object) -> ModelRequest:
    return codec(dialect).decode(msgspec.json.encode(body))


def sent(dialect: Dialect, request: ModelRequest) -> dict[str, object]:
    return msgspec.json.decode(codec(dialect).encode(request), type=dict[str, object])


def ask(*messages: Message, **more: object) -> ModelRequest:
    plain = ModelRequest(model="m", messages=messages)
    return msgspec.structs.replace(plain, **more)
