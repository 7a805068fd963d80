"""How is an order put to a target, which may speak another dialect and know nothing of the rest?

The provider that was asked for gets the request byte for byte. Any other gets what every vendor
understands: fields of one vendor, and reasoning that another one signed, would be refused.
"""

from msgspec.structs import replace

from goent.llm.codec import codec
from goent.llm.talk import Message, ModelRequest, Reasoning
from goent.upstream.continuing import continued
from goent.upstream.course import Order, Target
from goent.upstream.forward import Headers, ModelCall


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
    own = target.provider.backend == order.backend and target.dialect == order.dialect
    headers: Headers = order.headers if own else theirs.headers
    if own and not said and target.provider.model == order.model:
        body = order.body
    else:
        request = codec(order.dialect).decode(order.body)
        request = replace(request, model=target.provider.model)
        body = theirs.encode(continued(request if own else _plain(request), said))
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
