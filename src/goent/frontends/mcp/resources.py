"""The MCP resources: what every worker said and did, and what came of every swarm."""

import msgspec
from mcp import types
from mcp.shared.exceptions import MCPError

from goent.core.enquiries import Enquiries, Head
from goent.core.operations import Operations
from goent.domain.errors import GoentError
from goent.domain.requests import WorkerRequest
from goent.domain.swarms import SwarmRequest, SwarmResultRequest
from goent.domain.types import Value
from goent.domain.verification import outcome_words
from goent.frontends.mcp.asking import Context

WORKER = ("worker://", "/output")
SWARM = ("swarm://", "/result")
PAGE = 50  # resources in one answer


class Entry(Value, frozen=True, kw_only=True):
    """A resource, and when what it is about began."""

    resource: types.Resource
    began: str


class Resources:
    """Lists and reads the outputs of workers and the results of swarms."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._swarms = operations.swarms
        self._enquiries = enquiries

    async def page(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        """Newest first. A cursor is the last resource of the page before."""
        entries = sorted(self._entries(), key=lambda entry: entry.began, reverse=True)
        found = [entry.resource for entry in entries]
        if params and params.cursor is not None:
            uris = [resource.uri for resource in found]
            if params.cursor not in uris:
                raise bad_cursor(params.cursor, "leave it out for the first page")
            found = found[uris.index(params.cursor) + 1 :]
        page = found[:PAGE]
        more = page[-1].uri if len(found) > PAGE else None
        return types.ListResourcesResult(resources=page, next_cursor=more)

    async def templates(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        first_page(params)
        output = types.ResourceTemplate(
            uri_template="{id}".join(WORKER),
            name="worker output",
            description="Everything a worker said and did, whole.",
            mime_type="text/plain",
        )
        result = types.ResourceTemplate(
            uri_template="{id}".join(SWARM),
            name="swarm result",
            description="What came of a swarm, with all conflicts and their hunks.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[output, result])

    async def read(
        self, _: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        await self.check(uri)
        if swarm := _id_in(uri, SWARM):
            kind, text = "application/json", await self._result(swarm)
        else:
            kind, text = "text/plain", await self._enquiries.whole_output(_id_in(uri, WORKER))
        contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def check(self, uri: str) -> None:
        """Raise unless there is such a resource; one of long ago is brought back."""
        try:
            if swarm := _id_in(uri, SWARM):
                await self._enquiries.recall(SwarmRequest(swarm_id=swarm))
                self._swarms.head(swarm)
            elif worker := _id_in(uri, WORKER):
                await self._enquiries.recall(WorkerRequest(worker_id=worker))
                self._enquiries.status(worker)
            else:
                there = f"{'{id}'.join(WORKER)} and {'{id}'.join(SWARM)}"
                raise _not_found(uri, f"unknown resource {uri!r}; there are {there}")
        except GoentError as error:
            raise _not_found(uri, str(error)) from error

    def heads(self) -> dict[str, Head]:
        """How each resource stands, by its URI: what is equal has not changed."""
        workers = {_uri(WORKER, name): head for name, head in self._enquiries.heads().items()}
        return workers | {_uri(SWARM, name): head for name, head in self._swarms.heads().items()}

    def _entries(self) -> list[Entry]:
        workers = [
            Entry(
                resource=types.Resource(
                    uri=_uri(WORKER, line.worker_id),
                    name=f"{line.worker_id} ({outcome_words(line.state, line.evidence)})",
                    description=line.task,
                    mime_type="text/plain",
                ),
                began=line.started_at,
            )
            for line in self._enquiries.lines()
        ]
        swarms = [
            Entry(
                resource=types.Resource(
                    uri=_uri(SWARM, line.swarm_id),
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
    return invalid(f"cursor {cursor!r} is not one of go-ent's; {remedy}")


def invalid(message: str) -> MCPError:
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
