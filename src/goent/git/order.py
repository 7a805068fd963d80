"""Which pieces go together, so that the most are merged? Pure; pieces are bits of a number.

Merging a piece brings along all that it contains, so only the outermost ones, the heads, are
chosen. Finding the most that do not clash is hard in general and easy for a swarm's sizes: the
search is exact up to a number of steps, and after that the best it has seen.
"""

from collections.abc import Iterator, Sequence
from typing import Final

STEPS: Final = 20_000


class Choice:
    """`covers[n]` is what piece n brings along, itself too; `clashes[n]` what it cannot go with.

    `failed` are sets of heads that were seen not to go together, although each two of them do.
    """

    def __init__(
        self,
        covers: Sequence[int],
        clashes: Sequence[int],
        failed: Sequence[int] = (),
        *,
        steps: int = STEPS,
    ) -> None:
        self._covers = covers
        self._clashes = clashes
        self._failed = failed
        self._steps = steps
        self._best = (-1, 0)

    def heads(self) -> list[int]:
        """The chosen ones, in their order. Of equally many the earlier ones, as far as that goes."""
        chosen = 0
        for part in self._parts():
            self._best = (-1, 0)
            self._search(part, 0, 0)
            chosen |= self._best[1]
        return list(bits(chosen))

    def covered(self) -> int:
        """How many pieces the chosen heads bring: no merge can have more."""
        return self._cover(sum(1 << head for head in self.heads())).bit_count()

    def _search(self, open_: int, chosen: int, covered: int) -> None:
        self._steps -= 1
        for piece in bits(open_):
            if self._is_free(piece, open_, chosen):
                chosen |= 1 << piece
                open_ &= ~self._covers[piece]
                covered |= self._covers[piece]
        if (covered | self._cover(open_)).bit_count() <= self._best[0]:
            return
        if not open_:
            self._best = (covered.bit_count(), chosen)
            return
        # Without whoever clashes most, and of those the last: the first descent is a good guess.
        piece = max(bits(open_), key=lambda n: ((self._clashes[n] & open_).bit_count(), n))
        rest = open_ & ~(1 << piece)
        self._search(rest, chosen, covered)
        taken = chosen | 1 << piece
        if self._steps > 0 and not any(failed & ~taken == 0 for failed in self._failed):
            brought = self._covers[piece]
            self._search(rest & ~self._clashes[piece] & ~brought, taken, covered | brought)

    def _is_free(self, piece: int, open_: int, chosen: int) -> bool:
        """Nothing that may still be chosen speaks against it."""
        bit = 1 << piece
        return not self._clashes[piece] & open_ and not any(
            failed & bit and not failed & ~(chosen | open_) for failed in self._failed
        )

    def _cover(self, pieces: int) -> int:
        found = 0
        for piece in bits(pieces):
            found |= self._covers[piece]
        return found

    def _parts(self) -> Iterator[int]:
        """Sets of pieces that have nothing to do with one another: each is searched by itself."""
        links = [cover | clash for cover, clash in zip(self._covers, self._clashes, strict=True)]
        for failed in self._failed:
            for piece in bits(failed):
                links[piece] |= failed
        left = (1 << len(links)) - 1
        while left:
            part, ahead = 0, left & -left
            while ahead:
                part |= ahead
                ahead = self._next(links, part) & ~part
            left &= ~part
            yield part

    @staticmethod
    def _next(links: Sequence[int], part: int) -> int:
        found = 0
        for piece, link in enumerate(links):
            if part >> piece & 1:
                found |= link
            elif link & part:
                found |= 1 << piece
        return found


def bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
