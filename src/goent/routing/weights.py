"""Where do the learned weights come from? A small file in the package, read on first use.

It holds no words: a feature is found by the checksum of its name. How it was made is in
`scripts/train_classifier.py`.
"""

import zlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from struct import Struct as Packing
from typing import Final

import msgspec

from goent.domain.tasks import TaskType
from goent.domain.types import Value

LEARNED: Final[tuple[TaskType, ...]] = (
    "implement",
    "fix",
    "refactor",
    "documentation",
    "test",
    "format",
)
COLUMNS: Final = len(LEARNED) + 2  # and log(1 + lines), and log(files)
FILE: Final = "weights.msgpack"
_row: Final = Packing(f"{COLUMNS}b").unpack_from


class Model(Value, frozen=True, kw_only=True):
    """The file. Column by column: a bias, and what a step of the weights is worth.

    `cuts` are the values of log(1 + lines) where the next complexity begins.
    """

    keys: bytes
    values: bytes
    bias: tuple[float, ...]
    steps: tuple[float, ...]
    cuts: tuple[float, ...]


class Weights:
    """A model, ready to be asked."""

    def __init__(self, model: Model) -> None:
        keys = array("I")
        keys.frombytes(model.keys)
        self._rows = {key: row * COLUMNS for row, key in enumerate(keys)}
        self._values = model.values
        self.bias: Sequence[float] = model.bias
        self.steps: Sequence[float] = model.steps
        self.cuts: Sequence[float] = model.cuts

    def row(self, feature: str) -> Sequence[int] | None:
        """In steps of each column; None if nothing was learned of it."""
        at = self._rows.get(key_of(feature))
        return None if at is None else _row(self._values, at)


def key_of(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def load_weights() -> Weights:
    packed = files("goent.routing").joinpath(FILE).read_bytes()
    return Weights(msgspec.msgpack.decode(packed, type=Model))
