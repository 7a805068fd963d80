"""How is a worker's permission question put to the person at the client, and what is the answer?

By a form with one choice (MCP's elicitation). A form that is declined, closed or filled in wrongly
is no answer: the question stays open for `worker_answer` and the command line.
"""

from typing import Any, Literal

import msgspec
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from goent.domain.replies import Question, Status
from goent.domain.types import Answer, Value

Context = ServerRequestContext[Any, Any]
Outcome = Answer | Literal["elsewhere"] | None  # None: the question was left open

BY = "mcp elicitation"
FIELD = "answer"
MOST_DETAIL = 2000  # characters of a command or an edit that a form shows


class Asking(Value, frozen=True, kw_only=True):
    """Which question of which worker. The key is never used for another one."""

    worker_id: str
    turn: int
    permission_id: str

    @property
    def key(self) -> str:
        return f"{self.worker_id}/{self.turn}/{self.permission_id}"


class _Filled(msgspec.Struct, frozen=True):
    answer: Answer


def is_modern(context: Context) -> bool:
    """Whether the client speaks the era without handshake, where a server cannot ask by itself."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def can_be_asked(context: Context) -> bool:
    """A bare `elicitation: {}` is from before there were other modes, and means forms."""
    capabilities = context.session.client_capabilities
    offered = capabilities.elicitation if capabilities else None
    return offered is not None and (offered.form is not None or offered.url is None)


def asking(status: Status, question: Question) -> Asking:
    return Asking(worker_id=status.worker_id, turn=status.turn, permission_id=question.id)


def form(status: Status, question: Question) -> types.ElicitRequestFormParams:
    detail = question.detail
    if len(detail) > MOST_DETAIL:
        detail = f"{detail[:MOST_DETAIL]}… ({len(question.detail) - MOST_DETAIL} characters more)"
    return types.ElicitRequestFormParams(
        message=(
            f"Worker {status.worker_id} ({status.model}) asks for permission.\n"
            f"{question.tool}: {detail}\nIts task: {status.task}"
        ),
        requested_schema={
            "type": "object",
            "properties": {
                FIELD: {
                    "type": "string",
                    "title": "Answer",
                    "description": "always: for this worker, as long as it lives",
                    "enum": [option.id for option in question.options],
                }
            },
            "required": [FIELD],
        },
    )


def choice(response: object) -> Answer | None:
    """What the person chose, if anything."""
    if not isinstance(response, types.ElicitResult) or response.action != "accept":
        return None
    try:
        return msgspec.convert(response.content, _Filled).answer
    except msgspec.ValidationError:
        return None
