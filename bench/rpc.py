"""What does a `session/update` cost, in CPU time, on either side of a pipe: ours and the SDK's?

`python -m bench.rpc` runs both stacks one after the other: an agent that sends 20,000 small
updates during one prompt, and the client that starts it, each in a process of its own.
"""

import sys
from typing import Literal

import anyio
import msgspec
from msgspec import Struct

MESSAGES = 20_000

Stack = Literal["ours", "sdk"]


class Row(Struct, frozen=True, kw_only=True):
    """One stack's figures, in CPU seconds for all messages."""

    stack: Stack
    messages: int
    agent: float
    client: float

    def rate(self, seconds: float) -> float:
        return self.messages / seconds


async def run(messages: int = MESSAGES) -> list[Row]:
    """Both stacks, measured in the same run."""
    return await _measure("ours", messages) + await _measure("sdk", messages)


async def _measure(stack: Stack, messages: int) -> list[Row]:
    command = [sys.executable, "-m", f"bench.rpc_{stack}", "client", str(messages)]
    done = await anyio.run_process(command, stderr=None)
    return msgspec.json.decode(done.stdout, type=list[Row])


def main() -> None:
    ours, sdk = anyio.run(run)
    print(f"{ours.messages} session/update, agent to client; messages per CPU second")
    print(f"{'':8}{'ours':>12}{'SDK 0.12.1':>12}{'ratio':>8}{'ours us':>10}{'SDK us':>10}")
    for side, mine, theirs in (
        ("agent", ours.agent, sdk.agent),
        ("client", ours.client, sdk.client),
    ):
        print(
            f"{side:8}{ours.rate(mine):12,.0f}{sdk.rate(theirs):12,.0f}{theirs / mine:7.1f}x"
            f"{mine / ours.messages * 1e6:10.2f}{theirs / sdk.messages * 1e6:10.2f}"
        )


if __name__ == "__main__":
    main()
