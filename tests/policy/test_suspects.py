import math

import pytest

from goent.workers.change_attribution import first_failing

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", range(1, 18))
async def test_the_first_that_fails_is_found_with_few_questions(count: int):
    commits = [f"c{n}" for n in range(count)]
    for bad in range(count):
        asked: list[str] = []

        async def fails(commit: str, bad: int = bad, asked: list[str] = asked) -> bool:
            asked.append(commit)
            return int(commit[1:]) >= bad

        assert await first_failing(commits, fails) == bad
        assert len(asked) <= math.ceil(math.log2(count)) + 1
        assert len(set(asked)) == len(asked)


async def test_nothing_fails_if_the_last_does_not():
    async def fails(commit: str) -> bool:
        return not commit

    assert await first_failing(["a", "b"], fails) is None
    assert await first_failing([], fails) is None


async def test_a_commit_that_has_several_pieces_is_asked_about_once():
    asked: list[str] = []

    async def fails(commit: str) -> bool:
        asked.append(commit)
        return commit == "b"

    assert await first_failing(["a", "b", "b", "b"], fails) == 1
    assert sorted(asked) == ["a", "b"]
