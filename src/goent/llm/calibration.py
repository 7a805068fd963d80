"""How far off are our token estimates for a model? Learned from the usage that comes back."""

from typing import Final, Self

from msgspec.structs import replace

from goent.domain.types import Value

LEAST_TOKENS: Final = 100  # below, a provider's own preamble outweighs what was estimated
ABSURD: Final = 4.0  # no tokenizer is so far off: then something else was counted
NEEDED: Final = 3  # samples before anything is corrected
WINDOW: Final = 10  # about so many of the last samples count
STEP: Final = 1.5  # a sample counts as at most so far from what was learned before


class Calibration(Value, frozen=True, kw_only=True):
    """A moving average of actual by estimated tokens, and how many samples it rests on."""

    factor: float = 1.0
    samples: int = 0

    def after(self, *, estimated: int, actual: int) -> Self:
        """What is known after one more call; a sample that tells nothing changes nothing."""
        if estimated < LEAST_TOKENS or not estimated / ABSURD <= actual <= estimated * ABSURD:
            return self
        ratio = actual / estimated
        if self.samples >= NEEDED:
            ratio = min(max(ratio, self.factor / STEP), self.factor * STEP)
        weight = 1 / min(self.samples + 1, WINDOW)
        return replace(
            self,
            factor=self.factor + weight * (ratio - self.factor),
            samples=self.samples + 1,
        )

    def corrected(self, estimated: int) -> int:
        """The estimate as this model's tokenizer would probably have it."""
        if self.samples < NEEDED or not estimated:
            return estimated
        return max(1, round(estimated * self.factor))
