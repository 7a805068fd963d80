"""What does a provider cost? One spelling of today and three older ones."""

import re
from decimal import Decimal
from typing import Final

from goent.config.fields import Fields
from goent.domain.types import Price

_SENTENCE: Final = re.compile(r"\$?\s*(\d{1,9}(?:\.\d{1,12})?)\s*/\s*1?\s*([kKmM])\s*(?:tokens?)?")
_PER_MILLION: Final = {"k": Decimal(1000), "m": Decimal(1)}


def read_price(fields: Fields) -> Price | None:
    """USD per million tokens; None where nothing is said."""
    spelling = fields.one_of("price", "cost_per_1m_tokens", "cost")
    if spelling == "price":
        return fields.section("price", read_price_table)
    if spelling == "cost_per_1m_tokens":
        return _flat(fields.number("cost_per_1m_tokens", None))
    if spelling == "cost":
        return _old_cost(fields)
    return None


def read_price_table(fields: Fields) -> Price | None:
    """`{input, output, cache_read, cache_write}`, in `providers.yaml` and in `opencode.json`."""
    for key in ("input", "output"):
        if not fields.has(key):
            fields.mistake(key, "is missing; a price has both input and output, in USD per million")
    price_in, price_out = fields.number("input", None), fields.number("output", None)
    cache_read, cache_write = fields.number("cache_read", None), fields.number("cache_write", None)
    if price_in is None or price_out is None:
        return None
    return Price(input=price_in, output=price_out, cache_read=cache_read, cache_write=cache_write)


def _old_cost(fields: Fields) -> Price | None:
    if fields.shape("cost") == "table":
        return fields.section("cost", _per_tokens)
    sentence = fields.text("cost", None)
    if sentence is None:
        return None
    match = _SENTENCE.fullmatch(sentence)
    if match is None:
        fields.mistake("cost", f"{sentence!r} is no price such as '$0.01/1M tokens'")
        return None
    figure, unit = match.groups()
    return _flat(Decimal(figure) * _PER_MILLION[unit.lower()])


def _per_tokens(fields: Fields) -> Price | None:
    spelling = fields.one_of("per_1k_tokens", "per_1m_tokens")
    if spelling is None:
        fields.mistake("per_1k_tokens", "is missing; say what a thousand tokens cost, in USD")
        return None
    figure = fields.number(spelling, None)
    if figure is None or spelling == "per_1m_tokens":
        return _flat(figure)
    return _flat(figure * 1000)


def _flat(figure: Decimal | None) -> Price | None:
    return None if figure is None else Price(input=figure, output=figure)
