"""Serves worker outputs and swarm results as MCP resources, and reports their changes.

The list of resources shows the states of workers and swarms. In the era without handshake clients
name what they want to be notified of (`subscriptions/listen`); before it, every client is notified
of changes of the list, and of single resources that it subscribed to. Changes are batched, so that
streamed text causes few notifications.
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
    """A resource, and when its worker or swarm started."""

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
        """Newest first. A cursor is the last resource of the previous page."""
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
            description="The result of a swarm, with all conflicts and their hunks.",
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
        """Raises unless the resource exists; old ones are loaded again."""
        try:
            if swarm := _id_in(uri, SWARM_URI):
                await self._enquiries.recall(SwarmRequest(swarm_id=swarm))
                self._swarms.state_mark(swarm)
            elif worker := _id_in(uri, WORKER_URI):
                await self._enquiries.recall(WorkerRequest(worker_id=worker))
                self._enquiries.status(worker)
            else:
                known = f"{'{id}'.join(WORKER_URI)} and {'{id}'.join(SWARM_URI)}"
                raise _not_found(uri, f"unknown resource {uri!r}; there are {known}")
        except GoentError as error:
            raise _not_found(uri, str(error)) from error

    def heads(self) -> dict[str, StateMark]:
        """The state of each resource by its URI; an equal mark means no change."""
        workers, swarms = self._enquiries.state_marks(), self._swarms.state_marks()
        marks = {name.join(WORKER_URI): mark for name, mark in workers.items()}
        return marks | {name.join(SWARM_URI): mark for name, mark in swarms.items()}

    def _entries(self) -> list[ResourceEntry]:
        workers = [
            ResourceEntry(
                resource=types.Resource(
                    uri=line.worker_id.join(WORKER_URI),
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
                    uri=line.swarm_id.join(SWARM_URI),
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
    """Refuses any cursor, for a list of one page."""
    if params and params.cursor is not None:
        raise bad_cursor(params.cursor, "this list has one page: leave it out")


def bad_cursor(cursor: str, remedy: str) -> MCPError:
    return invalid_params(f"cursor {cursor!r} is not one of go-ent's; {remedy}")


def invalid_params(message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message)


def _not_found(uri: str, message: str) -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message=message, data={"uri": uri})


def _id_in(uri: str, kind: tuple[str, str]) -> str:
    """The id in the URI; empty if it is not of that kind."""
    prefix, suffix = kind
    fits = uri.startswith(prefix) and uri.endswith(suffix)
    return uri[len(prefix) : -len(suffix)] if fits else ""


BATCH_S = 0.5  # between notifications of the same resource
SEND_S = 2.0  # for a client to read one
MAX_STREAMS = 64
MAX_READERS = 64

log = logging.getLogger(__name__)


@dataclass
class ResourceReader:
    """A client of the older era, and what it wants to be notified of."""

    session: ServerSession
    lists: bool = False
    uris: set[str] = field(default_factory=set[str])


class ResourceWatch:
    """Notifies the clients of one connection, or of one HTTP endpoint, of changes."""

    def __init__(self, enquiries: WorkerQueries, resources: McpResources) -> None:
        self._enquiries = enquiries
        self._resources = resources
        self._bus = InMemorySubscriptionBus()
        self.listen = ListenHandler(self._bus, max_subscriptions=MAX_STREAMS)
        self.readers: dict[str, ResourceReader] = {}

    def reader(self, context: McpContext) -> ResourceReader:
        """The client by its session; a connection without sessions is one client."""
        session = context.request.headers.get("mcp-session-id", "") if context.request else ""
        if session not in self.readers and len(self.readers) >= MAX_READERS:
            del self.readers[next(iter(self.readers))]
        return self.readers.setdefault(session, ResourceReader(context.session))

    async def run(self, before: dict[str, StateMark]) -> None:
        while True:
            if self._resources.heads() == before:
                await self._enquiries.wait_for_change()
            await anyio.sleep(BATCH_S)
            now = self._resources.heads()
            changed = [uri for uri, head in now.items() if head != before.get(uri)]
            listed = {u: h.state for u, h in now.items()} != {u: h.state for u, h in before.items()}
            before = now
            if listed:
                await self._bus.publish(ResourcesListChanged())
            for uri in changed:
                await self._bus.publish(ResourceUpdated(uri))
            for name, reader in list(self.readers.items()):
                await self._notify(name, reader, changed, listed=listed)

    async def _notify(
        self, name: str, reader: ResourceReader, changed: list[str], *, listed: bool
    ) -> None:
        with anyio.move_on_after(SEND_S) as sending:
            if listed and reader.lists:
                await reader.session.send_resource_list_changed()
            for uri in reader.uris.intersection(changed):
                await reader.session.send_resource_updated(uri)
        if sending.cancelled_caught:
            log.info("a client does not read its notifications: it gets no more")
            self.readers.pop(name, None)


class ResourceChanges:
    """Serves subscriptions; nothing is watched before the first one."""

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
        """Unknown resources are left out of the acknowledgement, as the protocol requires."""
        wanted = params.notifications
        accepted = types.SubscriptionFilter(
            resources_list_changed=wanted.resources_list_changed,
            resource_subscriptions=[
                uri for uri in wanted.resource_subscriptions or () if await self._exists(uri)
            ],
        )
        known = params.model_copy(update={"notifications": accepted})
        return await self._watch(context).listen(context, known)

    async def _exists(self, uri: str) -> bool:
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
        if context.request is None:  # over HTTP this era does not announce the capability
            self._watch(context).reader(context).lists = True
