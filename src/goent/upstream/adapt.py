"""Puts an order to a target, which may speak another dialect and know nothing of the rest.

The provider that was asked for gets the request byte for byte. Any other gets what every vendor
understands: fields of one vendor, and reasoning that another one signed, would be refused. What is
left out on the way is told.
"""

from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from goent.domain.types import Dialect
from goent.llm import anthropic_shapes, openai_shapes
from goent.llm.codec import codec
from goent.llm.model_options import with_options
from goent.llm.talk import Message, ModelRequest, Reasoning
from goent.upstream.continuing import continued
from goent.upstream.course import Order, Target
from goent.upstream.forward import Headers, ModelCall

# Fields that change nothing about the answer, or go into a place of their own.
_UNHEARD: Final = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
_KNOWN: Final[dict[Dialect, frozenset[str]]] = {
    "openai": frozenset(openai_shapes.Request.__struct_fields__) | _UNHEARD,
    "anthropic": frozenset(anthropic_shapes.Request.__struct_fields__) | _UNHEARD,
}


def call_for(
    order: Order,
    target: Target,
    *,
    said: str = "",
    hurry: bool = False,
    silence_s: float | None = None,
) -> ModelCall:
    """The request to send; with `said`, for the rest of an answer that broke off there."""
    theirs = codec(target.dialect)
    own = _is_own(order, target)
    headers: Headers = order.headers if own else theirs.headers
    if not said and _is_asked_for(order, target):
        body = order.body
    else:
        request = codec(order.dialect).decode(order.body)
        request = replace(request, model=target.provider.model)
        request = continued(request if own else _plain(request), said)
        body = theirs.encode(with_options(request, target.dialect, target.provider.options))
    return ModelCall(
        backend=target.provider.backend,
        dialect=target.dialect,
        method="POST",
        url=f"{target.base_url}/{theirs.path}",
        headers=headers,
        body=body,
        key=target.key,
        given=target.headers,
        server=target.server,
        hurry=hurry,
        silence_s=silence_s,
    )


def left_out(order: Order, target: Target) -> str:
    """What the order says and this target is not told, by its names; empty if that is nothing."""
    if _is_asked_for(order, target):
        return ""
    try:
        fields = msgspec.json.decode(order.body, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    request = codec(order.dialect).decode(order.body)
    names = [name for name in fields if name not in _KNOWN[order.dialect]]
    if not _is_own(order, target):
        names += [name for name in ("reasoning_effort", "thinking") if getattr(request, name)]
        names += ["output_config.effort"] * bool(request.thinking_effort)
    told = f"without {', '.join(sorted(names))}, which it may not know" if names else ""
    wanted = request.json_answer
    if wanted and wanted.schema is None and target.dialect == "anthropic" != order.dialect:
        in_words = "for JSON in words, because it has no response_format json_object"
        return f"{told}, and {in_words}" if told else in_words
    return told


def _is_own(order: Order, target: Target) -> bool:
    return target.provider.backend == order.backend and target.dialect == order.dialect


def _is_asked_for(order: Order, target: Target) -> bool:
    return _is_own(order, target) and target.provider.model == order.model


def _plain(request: ModelRequest) -> ModelRequest:
    return replace(
        request,
        messages=tuple(_without_reasoning(message) for message in request.messages),
        thinking=None,
        thinking_effort=None,
        reasoning_effort=None,
    )


def _without_reasoning(message: Message) -> Message:
    parts = tuple(part for part in message.parts if not isinstance(part, Reasoning))
    return replace(message, parts=parts)
