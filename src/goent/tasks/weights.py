"""Where do the learned weights come from? A small file in the package, read on first use.

It holds no words: a feature is found by the checksum of its name. How it was made is in
`scripts/train_classifier.py`.
"""

import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
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
        if sys.byteorder == "big":
            keys.byteswap()
        self._begins = {key: row * COLUMNS for row, key in enumerate(keys)}
        self._values = model.values
        self.bias: Sequence[float] = model.bias
        self.steps: Sequence[float] = model.steps
        self.cuts: Sequence[float] = model.cuts

    def rows(self, features: Iterable[str]) -> dict[str, Sequence[int]]:
        """In steps of each column; a feature of which nothing was learned is left out."""
        begins, values, crc32 = (
            self._begins,
            self._values,
            zlib.crc32,
        )  # asked some 150 times a task
        return {
            name: _row(values, begins[key])
            for name in features
            if (key := crc32(name.encode("utf-8", "replace"))) in begins
        }


def key_of(feature: str) -> int:
    return zlib.crc32(feature.encode("utf-8", "replace"))


@lru_cache(maxsize=1)
def load_weights() -> Weights:
    packed = files("goent.tasks").joinpath(FILE).read_bytes()
    return Weights(msgspec.msgpack.decode(packed, type=Model))
