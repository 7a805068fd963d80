"""How much go-ent itself gets done in a CPU second: messages on the wire, events in the journal."""

import anyio
from bench import journal, rpc
from bench.place import Place
from bench.table import Row


async def messages(_: Place) -> list[Row]:
    """`session/update`, sent and received, beside the protocol's own Python SDK."""
    ours, sdk = await rpc.run()
    return [
        Row(
            measure=f"`session/update`, {side}",
            unit="per CPU s",
            ours=ours.rate(mine),
            peer=sdk.rate(theirs),
            peer_name="agent-client-protocol",
            at_least=8,
        )
        for side, mine, theirs in (
            ("sent", ours.agent, sdk.agent),
            ("received", ours.client, sdk.client),
        )
    ]


async def events(_: Place) -> list[Row]:
    """Text of a model into the journal and out of it, in pages of a hundred."""
    figures = await anyio.to_thread.run_sync(journal.run)
    return [
        Row(
            measure="events into the journal",
            unit="per CPU s",
            ours=figures.appended,
            at_least=20_000,
        ),
        Row(measure="events out of the journal", unit="per CPU s", ours=figures.read),
        Row(
            measure=f"a page of the journal while {journal.PER_S:,} events/s are written",
            unit="ms",
            ours=figures.page_beside * 1000,
            peer=figures.page_alone * 1000,
            peer_name="nobody writes",
            at_most=1.25,
        ),
    ]
