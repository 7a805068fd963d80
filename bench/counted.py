"""What did an order cost? It is run below a counter of its own, see `bench.tree`."""

import statistics
import sys
from collections.abc import Sequence

import anyio
import msgspec
from bench.cost import Failed
from bench.tree import Bill, Order


async def counted(order: Order) -> Bill:
    """The bill of an order that went well to its end."""
    counter = [sys.executable, "-m", "bench.tree"]
    done = await anyio.run_process(counter, input=msgspec.json.encode(order), stderr=None)
    bill = msgspec.json.decode(done.stdout, type=Bill)
    if bill.failed:
        raise Failed(f"{len(bill.failed)} commands failed: {bill.failed[0]}")
    return bill


def median(bills: Sequence[Bill]) -> Bill:
    """Of each figure by itself."""
    return Bill(
        wall=statistics.median(bill.wall for bill in bills),
        cpu=statistics.median(bill.cpu for bill in bills),
        memory=int(statistics.median(bill.memory for bill in bills)),
        processes=max(bill.processes for bill in bills),
    )
