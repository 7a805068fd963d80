"""Serves worker outputs and swarm results as MCP resources, and reports their changes.

The list of resources tells the states of workers and swarms. In the era without handshake a client
listens (`subscriptions/listen`) for what it names; before it, whoever is connected hears that the
list changed, and of one resource only if it subscribed to it. Changes are gathered, so that a
stream of words is a notification now and then.
"""

import logging
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import anyio
import msgspec
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

from goent.domain.errors import GoentError
from goent.domain.requests import WorkerRequest
from goent.domain.swarm_messages import SwarmRequest, SwarmResultRequest
from goent.domain.types import Value
from goent.domain.verification import outcome_words
from goent.mcp.call_tasks import CallTasks
from goent.mcp.elicitation import McpContext
from goent.operations.operation_table import Operations
from goent.workers.worker_queries import StateMark, WorkerQueries

WORKER_URI = ("worker://", "/output")
SWARM_URI = ("swarm://", "/result")
PAGE_SIZE = 50  # resources in one answer


class ResourceEntry(Value, frozen=True, kw_only=True):
    """A resource, and when what it is about began."""

    resource: types.Resource
    began: str


class McpResources:
    """Lists and reads the outputs of workers and the results of swarms."""

    def __init__(self, operations: Operations, enquiries: WorkerQueries) -> None:
        self._swarms = operations.swarms
        self._enquiries = enquiries

    async def page(
        self, _: McpContext, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Newest first. A cursor is the last resource of the page before."""
        entries = sorted(self._entries(), key=lambda entry: entry.began, reverse=True)
        found = [entry.resource for entry in entries]
        if params and params.cursor is not None:
            uris = [resource.uri for resource in found]
            if params.cursor not in uris:
                raise bad_cursor(params.cursor, "leave it out for the first page")
            found = found[uris.index(params.cursor) + 1 :]
        page = found[:PAGE_SIZE]
        more = page[-1].uri if len(found) > PAGE_SIZE else None
        return types.ListResourcesResult(resources=page, next_cursor=more)

    async def templates(
        self, _: McpContext, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        first_page(params)
        output = types.ResourceTemplate(
            uri_template="{id}".join(WORKER_URI),
            name="worker output",
            description="Everything a worker said and did, whole.",
            mime_type="text/plain",
        )
        result = types.ResourceTemplate(
            uri_template="{id}".join(SWARM_URI),
            name="swarm result",
            description="What came of a swarm, with all conflicts and their hunks.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[output, result])

    async def read(
        self, _: McpContext, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        await self.check(uri)
        if swarm := _id_in(uri, SWARM_URI):
            kind, text = "application/json", await self._result(swarm)
        else:
            kind, text = "text/plain", await self._enquiries.whole_output(_id_in(uri, WORKER_URI))
        contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def check(self, uri: str) -> None:
        """Raise unless there is such a resource; one of long ago is brought back."""
        try:
            if swarm := _id_in(uri, SWARM_URI):
                await self._enquiries.recall(SwarmRequest(swarm_id=swarm))
                self._swarms.state_mark(swarm)
            elif worker := _id_in(uri, WORKER_URI):
                await self._enquiries.recall(WorkerRequest(worker_id=worker))
                self._enquiries.status(worker)
            else:
                there = f"{'{id}'.join(WORKER_URI)} and {'{id}'.join(SWARM_URI)}"
                raise _not_found(uri, f"unknown resource {uri!r}; there are {there}")
        except GoentError as error:
            raise _not_found(uri, str(error)) from error

    def heads(self) -> dict[str, StateMark]:
        """How each resource stands, by its URI: what is equal has not changed."""
        workers = {
            _uri(WORKER_URI, name): head for name, head in self._enquiries.state_marks().items()
        }
        return workers | {
            _uri(SWARM_URI, name): head for name, head in self._swarms.state_marks().items()
        }

    def _entries(self) -> list[ResourceEntry]:
        workers = [
            ResourceEntry(
                resource=types.Resource(
                    uri=_uri(WORKER_URI, line.worker_id),
                    name=f"{line.worker_id} ({outcome_words(line.state, line.evidence)})",
                    description=line.task,
                    mime_type="text/plain",
                ),
                began=line.started_at,
            )
            for line in self._enquiries.lines()
        ]
        swarms = [
            ResourceEntry(
                resource=types.Resource(
                    uri=_uri(SWARM_URI, line.swarm_id),
                    name=f"{line.swarm_id} ({outcome_words(line.state, line.evidence)})",
                    description=f"swarm {line.swarm}: {line.done} of {line.total} tasks are over",
                    mime_type="application/json",
                ),
                began=line.started_at,
            )
            for line in self._swarms.list().swarms
        ]
        return workers + swarms

    async def _result(self, swarm: str) -> str:
        result = await self._swarms.result(SwarmResultRequest(swarm_id=swarm, whole=True))
        return msgspec.json.format(msgspec.json.encode(result), indent=1).decode()


def first_page(params: types.PaginatedRequestParams | None) -> None:
    """Refuse a cursor: the list has given none."""
    if params and params.cursor is not None:
        raise bad_cursor(params.cursor, "this list has one page: leave it out")


def bad_cursor(cursor: str, remedy: str) -> MCPError:
    return invalid_params(f"cursor {cursor!r} is not one of go-ent's; {remedy}")


def invalid_params(message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message)


def _not_found(uri: str, message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message, data={"uri": uri})


def _uri(kind: tuple[str, str], name: str) -> str:
    return name.join(kind)


def _id_in(uri: str, kind: tuple[str, str]) -> str:
    """Empty if the URI is not of that kind."""
    prefix, suffix = kind
    fits = uri.startswith(prefix) and uri.endswith(suffix)
    return uri[len(prefix) : -len(suffix)] if fits else ""


GATHER_S = 0.5  # between two notifications of the same thing
SEND_S = 2.0  # that a client may take to read one
MAX_STREAMS = 64
MAX_READERS = 64

log = logging.getLogger(__name__)


@dataclass
class ResourceReader:
    """A client of the older era. `session` speaks to it whenever there is something to say."""

    session: ServerSession
    lists: bool = False
    uris: set[str] = field(default_factory=set[str])


class ResourceWatch:
    """What the clients of one connection, or of one door, want to hear."""

    def __init__(self, enquiries: WorkerQueries, resources: McpResources) -> None:
        self._enquiries = enquiries
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus, max_subscriptions=MAX_STREAMS)
        self.readers: dict[str, ResourceReader] = {}

    def reader(self, context: McpContext) -> ResourceReader:
        """By session; a connection that has none is one client."""
        session = context.request.headers.get("mcp-session-id", "") if context.request else ""
        if session not in self.readers and len(self.readers) >= MAX_READERS:
            del self.readers[next(iter(self.readers))]
        return self.readers.setdefault(session, ResourceReader(context.session))

    async def run(self, before: dict[str, StateMark]) -> None:
        while True:
            if self._resources.heads() == before:
                await self._enquiries.wait_for_change()
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

    async def _tell(
        self, name: str, reader: ResourceReader, changed: list[str], *, listed: bool
    ) -> None:
        with anyio.move_on_after(SEND_S) as sending:
            if listed and reader.lists:
                await reader.session.send_resource_list_changed()
            for uri in reader.uris.intersection(changed):
                await reader.session.send_resource_updated(uri)
        if sending.cancelled_caught:
            log.info("a client does not read its notifications, and gets no more")
            self.readers.pop(name, None)


class ResourceChanges:
    """Serves subscriptions; nothing is watched for clients that want to hear nothing."""

    def __init__(self, enquiries: WorkerQueries, resources: McpResources) -> None:
        self._enquiries = enquiries
        self._resources = resources
        self._watches: WeakKeyDictionary[CallTasks, ResourceWatch] = WeakKeyDictionary()

    def add_to(self, server: Server[CallTasks]) -> None:
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

    def _watch(self, context: McpContext) -> ResourceWatch:
        tasks = context.lifespan_context
        assert isinstance(tasks, CallTasks), "the server's lifespan"
        watch = self._watches.get(tasks)
        if watch is None:
            watch = self._watches[tasks] = ResourceWatch(self._enquiries, self._resources)
            tasks.group.start_soon(watch.run, self._resources.heads())
        return watch

    async def _listen(
        self, context: McpContext, params: types.SubscriptionsListenRequestParams
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
        self, context: McpContext, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        await self._resources.check(params.uri)
        self._watch(context).reader(context).uris.add(params.uri)
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: McpContext, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._watch(context).reader(context).uris.discard(params.uri)
        return types.EmptyResult()

    async def _greet(self, context: McpContext, _: types.NotificationParams) -> None:
        if context.request is None:  # over HTTP the capability is not announced in this era
            self._watch(context).reader(context).lists = True
