"""Asks the person at an MCP client a worker's permission question, by a form (elicitation).

If the form is declined, closed or filled in wrongly, the question stays open for `worker_answer`
and the command line.
"""

from typing import Any, Literal

import msgspec
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from msgspec.structs import replace

from goent.domain.question_text import excerpt
from goent.domain.replies import Question, Status
from goent.domain.types import PermissionAnswer, Value

McpContext = ServerRequestContext[Any, Any]

ANSWERED_BY = "mcp elicitation"
ANSWER_FIELD = "answer"
INSTEAD_FIELD = "instead"
MAX_DETAIL_CHARS = 100_000  # of a command or an edit that a form shows
MAX_REPLY_DETAIL_CHARS = 3000  # of it in a reply to a model, which pays for them


class QuestionRef(Value, frozen=True, kw_only=True):
    """A question of a worker; its key is never reused."""

    worker_id: str
    turn: int
    permission_id: str

    @property
    def key(self) -> str:
        return f"{self.worker_id}/{self.turn}/{self.permission_id}"


class FormAnswer(Value, frozen=True, kw_only=True):
    """What the person chose; with a rejection perhaps what to do instead."""

    answer: PermissionAnswer
    instead: str = ""


FormOutcome = FormAnswer | Literal["elsewhere"] | None  # None: the question stays open


def is_modern(context: McpContext) -> bool:
    """Whether the client is of the era without handshake, in which a server sends no requests."""
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def supports_forms(context: McpContext) -> bool:
    """A bare `elicitation: {}` is older than the other modes, and means forms."""
    capabilities = context.session.client_capabilities
    offered = capabilities.elicitation if capabilities else None
    return offered is not None and (offered.form is not None or offered.url is None)


def question_ref(status: Status, question: Question) -> QuestionRef:
    return QuestionRef(worker_id=status.worker_id, turn=status.turn, permission_id=question.id)


def question_form(status: Status, question: Question) -> types.ElicitRequestFormParams:
    how = f"`go-ent status {status.worker_id}` shows them"
    detail = excerpt(question.shown or question.detail, MAX_DETAIL_CHARS, how)
    lines = [
        f"Worker {status.worker_id} ({status.model}) asks for permission.",
        f"{question.tool}: {detail}",
        f"Why it is asked: {question.reason}" if question.reason else "",
        f"always: {question.always}" if question.always else "",
        _deadline(question),
        f"Its task: {status.task}",
    ]
    return types.ElicitRequestFormParams(
        message="\n".join(filter(None, lines)),
        requested_schema={
            "type": "object",
            "properties": {
                ANSWER_FIELD: {
                    "type": "string",
                    "title": "Answer",
                    "description": question.always and f"allow_always: {question.always}",
                    "enum": [option.id for option in question.options],
                },
                INSTEAD_FIELD: {
                    "type": "string",
                    "title": "Instead",
                    "description": "With reject: what to do instead; may be left out",
                },
            },
            "required": [ANSWER_FIELD],
        },
    )


def _deadline(question: Question) -> str:
    if question.seconds_left is None:
        return ""
    return f"Without an answer within {question.seconds_left:.0f} s it is rejected."


def shorten_question(question: Question, room: int) -> Question:
    """The question for a model: whole if there is room, else its beginning and end."""
    if len(question.detail) + len(question.shown) <= room:
        return question
    text = question.shown or question.detail
    return replace(
        question,
        detail=excerpt(text, room, "worker_status with whole: true shows them"),
        shown="",
        omitted=max(0, len(text) - room),
    )


def form_answer(response: object) -> FormAnswer | None:
    """What the person chose, if anything."""
    if not isinstance(response, types.ElicitResult) or response.action != "accept":
        return None
    try:
        chosen = msgspec.convert(response.content, FormAnswer)
    except msgspec.ValidationError:
        return None
    # An instruction together with a yes is ambiguous.
    return None if chosen.instead.strip() and chosen.answer != "reject" else chosen
