"""How does the first version of the protocol ask whether something may be done?"""

from collections.abc import Mapping

from goent.acp.asks import (
    REQUEST_PERMISSION,
    PermissionOption,
    PermissionRequest,
    PermissionResponse,
    Selected,
    words_of,
)
from goent.agent.ports import Question, Rejection
from goent.domain.question_text import excerpt, visible
from goent.domain.types import Answer
from goent.frontends.acp.v1 import V1Encoder, asked
from goent.rpc import BadReply, ConnectionLost, Peer, RpcError

MOST_SHOWN = 200  # characters of what an always covers, in the label of an option
_ANSWERS: Mapping[str, Answer] = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "reject": "reject",
}


class V1Asking:
    """Questions are requests, and whoever answers nonsense has said no."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def encoder(self, session_id: str) -> V1Encoder:
        return V1Encoder(session_id)

    async def ask(self, session_id: str, question: Question) -> Answer | Rejection | None:
        request = PermissionRequest(
            session_id=session_id, tool_call=asked(question), options=_options(question)
        )
        try:
            reply = await self._peer.request(REQUEST_PERMISSION, request, result=PermissionResponse)
        except ConnectionLost:
            return None
        except (RpcError, BadReply):
            return "reject"
        outcome = reply.outcome
        if not isinstance(outcome, Selected):
            return None
        answer = _ANSWERS.get(outcome.option_id, "reject")
        words = words_of(outcome.meta)
        return Rejection(message=words) if words and answer == "reject" else answer


def _options(question: Question) -> tuple[PermissionOption, ...]:
    always = ", ".join(question.need.always or question.need.patterns)
    return (
        PermissionOption(option_id="allow_once", name="Allow once", kind="allow_once"),
        PermissionOption(
            option_id="allow_always",
            name=f"Allow for this session: {excerpt(visible(always), MOST_SHOWN)}"
            if always
            else "Allow for this session",
            kind="allow_always",
        ),
        PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
    )
