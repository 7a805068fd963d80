"""What OpenCode's own figures cost, when its model calls bypass the gate."""

from decimal import Decimal

import pytest

from goent.domain.types import Price, Provider, Usage
from goent.opencode.server_api import OpenCodeClient, ServerSession, TokenCounts
from goent.opencode.session import SessionSpending

pytestmark = pytest.mark.anyio


class Told(OpenCodeClient):
    """OpenCode's server, as far as a session's figures go."""

    def __init__(self, cost: float) -> None:
        self._cost = cost

    async def session(self, session: str) -> ServerSession:
        return ServerSession(id=session, cost=self._cost, tokens=TokenCounts(input=1000))

    async def children(self, session: str) -> list[ServerSession]:
        """A subagent, which has one of its own."""
        made = {"parent": ["child"], "child": ["grandchild"]}
        return [await self.session(each) for each in made.get(session, ())]


@pytest.mark.parametrize(
    ("told", "price", "expected"),
    [
        (0.25, None, Decimal("0.25")),
        (0.25, Price(input=Decimal(9), output=Decimal(9)), Decimal("0.25")),
        (0, None, None),
        (0, Price(input=Decimal(0), output=Decimal(0)), Decimal(0)),
        (0, Price(input=Decimal(5), output=Decimal(9)), Decimal("0.005")),
    ],
)
async def test_nothing_is_free_unless_a_file_says_so(
    told: float, price: Price | None, expected: Decimal | None
):
    provider = Provider(name="plan", backend="zai-coding-plan", model="glm-5.3", price=price)
    report = await SessionSpending(Told(told), provider, "s").report()
    assert report
    assert (report.usage, report.cost_usd) == (Usage(input=1000), expected)


async def test_what_a_subagents_subagent_took_is_counted():
    provider = Provider(name="plan", backend="zai-coding-plan", model="glm-5.3")
    report = await SessionSpending(Told(0.25), provider, "parent").report()
    assert report
    assert (report.usage, report.cost_usd) == (Usage(input=3000), Decimal("0.75"))
