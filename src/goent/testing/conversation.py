"""What did the client ask? A request of either dialect, as the script sees it."""

import re
from typing import Literal

from goent.domain.types import Value

_WORKING_DIRECTORY = re.compile(r"^\s*Working directory: (.+?)\s*$", re.MULTILINE)


class ToolCall(Value, frozen=True, kw_only=True):
    """A tool call on the wire. `arguments` is JSON text, and may be broken as models' text is."""

    id: str
    name: str
    arguments: str


class Message(Value, frozen=True, kw_only=True):
    """One message. A tool's result is a message of its own, in both dialects."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Conversation(Value, frozen=True, kw_only=True):
    """A request for the next message."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    stream_usage: bool = False

    @property
    def prompt(self) -> str:
        """The last thing the user said."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def prefill(self) -> str:
        """The beginning of the answer, when the request ends with one to be continued."""
        last = self.messages[-1] if self.messages else None
        continued = last and last.role == "assistant" and not last.tool_calls
        return last.text.rstrip() if last and continued else ""

    @property
    def step(self) -> int:
        """How many answers were given since the user spoke; one to be continued is not given yet."""
        roles = [message.role for message in self.messages]
        since = roles[::-1].index("user") if "user" in roles else len(roles)
        answers = roles[len(roles) - since :].count("assistant")
        return answers - bool(self.prefill)

    @property
    def cwd(self) -> str | None:
        """The working directory that the system prompt names."""
        found = _WORKING_DIRECTORY.search(self.system)
        return found[1] if found else None
