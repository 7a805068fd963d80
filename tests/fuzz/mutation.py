"""How does a good message go bad? Seeded: the same number gives the same message again."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

ROUNDS = int(os.environ.get("GOENT_FUZZ", "30"))

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63, -(2**63), 10**30, 1e308, -0.5, "", " ", "\0", "null"),
    *("../../etc/passwd", "w-" + "9" * 40, "é" * 50, "\ud7ff\U0001f600", [], {}, [[]], [None]),
    *({"": ""}, {"type": "unknown"}, "x" * 5000, list(range(300))),
)
TOKENS: tuple[bytes, ...] = (
    *(b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\r", b"\n", b'"', b"\\", b"{", b"}", b"]", b","),
    *(b"null", b"NaN", b"-", b"1e999", b"9" * 5000, b'"\\ud800"', b"\\u0000", b"\xef\xbb\xbf"),
    *(b"[" * 5000, b'{"a":' * 2000, b"%s%n", b"\x1b[2J"),
)


def rounds(name: str, share: float = 1.0) -> Iterator[random.Random]:
    """A source of chance for each round; the test's name and the number are its seed."""
    for number in range(max(1, round(ROUNDS * share))):
        yield random.Random(f"{name} {number}")


def mutated(corpus: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the corpus, changed a few times."""
    message = chance.choice(corpus)
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        change = chance.choice(_CHANGES)
        message = change(message, corpus, chance)
    return message


def _flip(message: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    changed = bytearray(message or b"x")
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(message: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _span(message, chance)
    return message[:start] + message[end:]


def _repeat(message: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _span(message, chance)
    return message[:end] + message[start:end] * chance.randrange(1, 4) + message[end:]


def _insert(message: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    start, _end = _span(message, chance)
    token = chance.choice((*TOKENS, chance.randbytes(chance.randrange(1, 40))))
    return message[:start] + token + message[start:]


def _splice(message: bytes, corpus: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(corpus)
    return message[: _span(message, chance)[0]] + other[_span(other, chance)[0] :]


def _regrow(message: bytes, _: Sequence[bytes], chance: random.Random) -> bytes:
    """Still JSON, with something else in one place."""
    try:
        tree: Any = msgspec.json.decode(message)
        return msgspec.json.encode(_grafted(tree, chance))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return message


def _grafted(tree: Any, chance: random.Random) -> Any:
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.15:
        return chance.choice(ODD)
    if isinstance(tree, list):
        items = msgspec.convert(tree, list[Any])
        place = chance.randrange(len(items))
        return [*items[:place], _grafted(items[place], chance), *items[place + 1 :]]
    members = msgspec.convert(tree, dict[str, Any])
    key = chance.choice(list(members))
    match chance.randrange(6):
        case 0:
            return {name: value for name, value in members.items() if name != key}
        case 1:
            return {**members, str(chance.choice(ODD)): members[key]}
        case _:
            return {**members, key: _grafted(members[key], chance)}


def _span(message: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(message) + 1)
    return start, min(len(message), start + chance.choice((1, 2, 8, 64)))


_CHANGES: tuple[Callable[[bytes, Sequence[bytes], random.Random], bytes], ...] = (
    *(_flip, _cut, _repeat, _insert, _splice),
    *(_regrow,) * 5,
)
