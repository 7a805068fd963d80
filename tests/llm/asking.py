"""Requests in few words, and their bodies."""

import msgspec
from msgspec import Raw

from goent.domain.types import Dialect
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    ChatMessage,
    MessageImage,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelRequest,
    ToolDefinition,
)

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = ToolDefinition(name="read", description="Reads.", schema=Raw(msgspec.json.encode(SCHEMA)))
PIXEL = "iVBORw0KGgo="


def user(*parts: MessageText | MessageImage | MessageToolResult) -> ChatMessage:
    return ChatMessage(role="user", parts=parts)


def model(*parts: MessageText | MessageReasoning | MessageToolUse) -> ChatMessage:
    return ChatMessage(role="assistant", parts=parts)


def asked(dialect: Dialect, body: object) -> ModelRequest:
    return codec_for(dialect).decode(msgspec.json.encode(body))


def sent(dialect: Dialect, request: ModelRequest) -> dict[str, object]:
    return msgspec.json.decode(codec_for(dialect).encode(request), type=dict[str, object])


def ask(*messages: ChatMessage, **more: object) -> ModelRequest:
    plain = ModelRequest(model="m", messages=messages)
    return msgspec.structs.replace(plain, **more)
