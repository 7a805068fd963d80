"""What did an order cost? It is run below a counter of its own, see `bench.tree`."""

import sys

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
