"""go-ent's gateway alone, as it is in the daemon: `python -m bench.stream_ours SOURCE FOLDER`.

With real books: every call is noted in a ledger before it goes out and settled with its tokens. The
first line of stdout is the `HttpListener`; it ends with its stdin.
"""

import sys
from pathlib import Path

import anyio
import msgspec
from bench.stream_client import Door

from goent.billing.call_accounts import Allowance, CallBookkeeper
from goent.billing.price_list import PriceList
from goent.domain.settings import Backend, Settings
from goent.domain.types import Secret
from goent.gateway.gateway import Gateway
from goent.providers.call_plan import CallPlan, plan_call
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream
from goent.store.journal_store import SqliteJournal
from goent.store.ledger_store import SqliteLedger
from goent.workers.feed import Feed
from goent.workers.worker import Roster


async def serve(source: str, folder: Path) -> None:
    backend = Backend(id="source", base_url=source, key=Secret("sk-bench"))
    settings = Settings(project=folder, backends={backend.id: backend})
    roster = Roster(lambda: settings)

    def course(worker: str, name: str, model: str) -> CallPlan:
        named, *fallbacks = roster.serving(worker, name, model)
        return plan_call(named, fallbacks, settings.backends, {})

    async with (
        SqliteJournal.open(folder / "journal.db", secrets=lambda: ()) as journal,
        SqliteLedger.open(folder / "ledger.db") as ledger,
        Connections.open() as connections,
    ):
        feed, prices = Feed(journal), PriceList(lambda: settings.backends)
        books = CallBookkeeper(
            settings=lambda: settings,
            feed=feed,
            ledger=ledger,
            prices=prices,
            roster=roster,
            allowance=Allowance(
                settings=lambda: settings,
                environ=dict[str, str],
                feed=feed,
                ledger=ledger,
                prices=prices,
            ),
        )
        async with Gateway.open(Upstream(connections, books), course) as gateway:
            token = gateway.issue_token()
            gateway.bind(token=token, session="s1", worker="w-bench")
            door = Door(port=gateway.port, path=f"/{backend.id}", key=token)
            print(msgspec.json.encode(door).decode(), flush=True)
            await anyio.to_thread.run_sync(sys.stdin.buffer.read)


if __name__ == "__main__":
    anyio.run(serve, sys.argv[1], Path(sys.argv[2]))
