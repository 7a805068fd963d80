"""Tells clients which resources have changed.

The list of resources tells the states of workers and swarms. In the era without handshake a client
listens (`subscriptions/listen`) for what it names; before it, whoever is connected hears that the
list changed, and of one resource only if it subscribed to it. Changes are gathered, so that a
stream of words is a notification now and then.
"""

import logging
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError

from goent.core.enquiries import Enquiries, Head
from goent.frontends.mcp.asking import Context
from goent.frontends.mcp.resources import Resources
from goent.frontends.mcp.tasks import Tasks

GATHER_S = 0.5  # between two notifications of the same thing
SEND_S = 2.0  # that a client may take to read one
MOST_STREAMS = 64
MOST_READERS = 64

log = logging.getLogger(__name__)


@dataclass
class Reader:
    """A client of the older era. `session` speaks to it whenever there is something to say."""

    session: ServerSession
    lists: bool = False
    uris: set[str] = field(default_factory=set[str])


class Watch:
    """What the clients of one connection, or of one door, want to hear."""

    def __init__(self, enquiries: Enquiries, resources: Resources) -> None:
        self._enquiries = enquiries
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus, max_subscriptions=MOST_STREAMS)
        self.readers: dict[str, Reader] = {}

    def reader(self, context: Context) -> Reader:
        """By session; a connection that has none is one client."""
        session = context.request.headers.get("mcp-session-id", "") if context.request else ""
        if session not in self.readers and len(self.readers) >= MOST_READERS:
            del self.readers[next(iter(self.readers))]
        return self.readers.setdefault(session, Reader(context.session))

    async def run(self, before: dict[str, Head]) -> None:
        while True:
            if self._resources.heads() == before:
                await self._enquiries.stirred()
            await anyio.sleep(GATHER_S)
            now = self._resources.heads()
            changed = [uri for uri, head in now.items() if head != before.get(uri)]
            listed = {u: h.state for u, h in now.items()} != {u: h.state for u, h in before.items()}
            before = now
            await self._publish(changed, listed=listed)
            for name, reader in list(self.readers.items()):
                await self._tell(name, reader, changed, listed=listed)

    async def _publish(self, changed: list[str], *, listed: bool) -> None:
        if listed:
            await self._bus.publish(ResourcesListChanged())
        for uri in changed:
            await self._bus.publish(ResourceUpdated(uri))

    async def _tell(self, name: str, reader: Reader, changed: list[str], *, listed: bool) -> None:
        with anyio.move_on_after(SEND_S) as sending:
            if listed and reader.lists:
                await reader.session.send_resource_list_changed()
            for uri in reader.uris.intersection(changed):
                await reader.session.send_resource_updated(uri)
        if sending.cancelled_caught:
            log.info("a client does not read its notifications, and gets no more")
            self.readers.pop(name, None)


class Changes:
    """Serves subscriptions; nothing is watched for clients that want to hear nothing."""

    def __init__(self, enquiries: Enquiries, resources: Resources) -> None:
        self._enquiries = enquiries
        self._resources = resources
        self._watches: WeakKeyDictionary[Tasks, Watch] = WeakKeyDictionary()

    def add_to(self, server: Server[Tasks]) -> None:
        server.add_request_handler(
            "subscriptions/listen", types.SubscriptionsListenRequestParams, self._listen
        )
        server.add_request_handler(
            "resources/subscribe", types.SubscribeRequestParams, self._subscribe
        )
        server.add_request_handler(
            "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe
        )
        server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._greet
        )

    def _watch(self, context: Context) -> Watch:
        tasks = context.lifespan_context
        assert isinstance(tasks, Tasks), "the server's lifespan"
        watch = self._watches.get(tasks)
        if watch is None:
            watch = self._watches[tasks] = Watch(self._enquiries, self._resources)
            tasks.group.start_soon(watch.run, self._resources.heads())
        return watch

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """What there is not is left out of the acknowledgement, as the protocol wants it."""
        wanted = params.notifications
        heard = types.SubscriptionFilter(
            resources_list_changed=wanted.resources_list_changed,
            resource_subscriptions=[
                uri for uri in wanted.resource_subscriptions or () if await self._is_there(uri)
            ],
        )
        kept = params.model_copy(update={"notifications": heard})
        return await self._watch(context).listen(context, kept)

    async def _is_there(self, uri: str) -> bool:
        try:
            await self._resources.check(uri)
        except MCPError:
            return False
        return True

    async def _subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        await self._resources.check(params.uri)
        self._watch(context).reader(context).uris.add(params.uri)
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._watch(context).reader(context).uris.discard(params.uri)
        return types.EmptyResult()

    async def _greet(self, context: Context, _: types.NotificationParams) -> None:
        if context.request is None:  # over HTTP the capability is not announced in this era
            self._watch(context).reader(context).lists = True
