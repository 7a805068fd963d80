"""What does a server's description of a tool become, so that every model vendor takes it?

One tool that a vendor does not take would make every call of the model fail: what cannot be made
fit is left out, and said.
"""

import msgspec
from msgspec import Raw

from goent.agent.mcp.messages import Offered
from goent.domain.types import Value

MAX_DESCRIPTION = 8_000
MAX_SCHEMA = 64 * 1024
# Vendors take none of these beside a type at the top; the server checks the arguments anyway.
NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "not", "enum", "const", "if", "then", "else")


class Offer(Value, frozen=True, kw_only=True):
    """A tool that can be offered to a model. `reads` is the server's own word for it."""

    tool: str
    title: str
    description: str
    schema: Raw
    reads: bool = False


def read_offers(raw: list[Raw]) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """The tools that can be used, and what is wrong with the others. The first of a name counts."""
    offers: dict[str, Offer] = {}
    wrong: list[str] = []
    for number, tool in enumerate(raw, 1):
        try:
            offer = _offer(tool)
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            wrong.append(f"its tool number {number} cannot be used: {error}")
        else:
            offers.setdefault(offer.tool, offer)
    return tuple(offers.values()), tuple(wrong)


def _offer(raw: Raw) -> Offer:
    offered = msgspec.json.decode(raw, type=Offered)
    if not offered.name:
        raise ValueError("it has no name")
    if len(offered.input_schema) > MAX_SCHEMA:
        raise ValueError(f"the schema of {offered.name!r} has more than {MAX_SCHEMA} bytes")
    schema, beside = _fit(offered.input_schema)
    description = offered.description or offered.title or offered.name
    if beside:
        description += f"\n\nThe arguments must also satisfy this JSON schema: {beside}"
    notes = offered.annotations
    return Offer(
        tool=offered.name,
        title=(notes.title if notes else None) or offered.title or offered.name,
        description=_cut(description),
        schema=schema,
        reads=bool(notes and notes.read_only_hint),
    )


def _fit(raw: Raw) -> tuple[Raw, str]:
    """The schema as an object's, and what of it had to be left out, as text."""
    schema = msgspec.json.decode(raw, type=dict[str, Raw])
    left_out = {key: schema.pop(key) for key in NOT_AT_THE_TOP if key in schema}
    kind = msgspec.json.decode(schema.get("type", b'"object"'))
    if kind != "object":
        raise ValueError(f"its arguments are of type {kind!r}, and not an object")
    whole = {"type": Raw(b'"object"'), "properties": Raw(b"{}"), **schema}
    msgspec.json.decode(whole["properties"], type=dict[str, dict[str, Raw] | bool])
    return Raw(msgspec.json.encode(whole)), msgspec.json.encode(
        left_out
    ).decode() if left_out else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_DESCRIPTION else f"{text[:MAX_DESCRIPTION]} […]"
