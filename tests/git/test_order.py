from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from goent.git.git_merger import MergeChoice, set_bits

SIZE = 7


def masks(pairs: set[tuple[int, int]], size: int) -> list[int]:
    found = [0] * size
    for one, other in pairs:
        found[one] |= 1 << other
        found[other] |= 1 << one
    return found


def alone(size: int) -> list[int]:
    return [1 << n for n in range(size)]


pairs = st.sets(
    st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)).filter(lambda p: p[0] < p[1])
)
failed = st.lists(st.integers(1, (1 << SIZE) - 1).filter(lambda n: n.bit_count() > 1), max_size=3)


@settings(max_examples=300, deadline=None)
@given(pairs, failed)
def test_no_choice_that_is_allowed_has_more(clashing: set[tuple[int, int]], failed: list[int]):
    clashes = masks(clashing, SIZE)

    def allowed(chosen: tuple[int, ...]) -> bool:
        bitset = sum(1 << n for n in chosen)
        return all(not clashes[n] & bitset for n in chosen) and not any(
            each & ~bitset == 0 for each in failed
        )

    everything = chain.from_iterable(combinations(range(SIZE), n) for n in range(SIZE + 1))
    most = max(len(chosen) for chosen in everything if allowed(chosen))
    heads = MergeChoice(alone(SIZE), clashes, failed).heads()
    assert allowed(tuple(heads)) and len(heads) == most


def test_the_one_that_clashes_with_all_is_left_and_the_earlier_of_two_stays():
    assert MergeChoice(alone(4), masks({(0, 1), (0, 2), (0, 3)}, 4)).heads() == [1, 2, 3]
    assert MergeChoice(alone(4), masks({(0, 1), (2, 3)}, 4)).heads() == [0, 2]


def test_a_piece_counts_with_all_that_it_contains():
    covers = [0b0001, 0b0010, 0b0111, 0b1000]
    clashes = masks({(2, 3)}, 4)
    choice = MergeChoice(covers, clashes)
    assert 2 in choice.heads() and 3 not in choice.heads()
    assert choice.covered() == 3


def test_many_that_clash_are_done_soon_and_well():
    size = 64
    ring = masks({(n, (n + 1) % size) for n in range(size - 1)} | {(0, size - 1)}, size)
    assert len(MergeChoice(alone(size), ring).heads()) == size // 2
    triangles = masks({(n, m) for n in range(size) for m in range(n) if n // 3 == m // 3}, size)
    assert len(MergeChoice(alone(size), triangles).heads()) == 22
    everyone = masks({(m, n) for n in range(size) for m in range(n)}, size)
    assert MergeChoice(alone(size), everyone).heads() == [0]
    assert list(set_bits(0b1010)) == [1, 3]
