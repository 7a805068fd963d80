"""Which piece made a merge fail, when each by itself was fine? By halving, not by trying them all."""

from collections.abc import Awaitable, Callable, Sequence


async def first_failing(
    commits: Sequence[str], fails: Callable[[str], Awaitable[bool]]
) -> int | None:
    """The first commit of a row of merges that fails; None if even the last one does not.

    Once one fails, those after it are taken to fail too: `fails` is asked about log2(n) + 1 times,
    and never twice for one commit.
    """
    known: dict[str, bool] = {}

    async def told(commit: str) -> bool:
        if commit not in known:
            known[commit] = await fails(commit)
        return known[commit]

    if not commits or not await told(commits[-1]):
        return None
    low, high = 0, len(commits) - 1  # the high one fails
    while low < high:
        middle = (low + high) // 2
        if await told(commits[middle]):
            high = middle
        else:
            low = middle + 1
    return high
