"""How does another model go on where an answer broke off, without saying anything twice?

It is shown what was said so far and asked for the rest, in a note at the end of the last message:
a message of its own would look like a new turn of the user's, and vendors do not agree on what an
unfinished one of the model's means. Models do not always listen: some begin again from the start,
some repeat the last words. Both are taken out.
"""

from msgspec.structs import replace

from goent.llm.talk import Message, ModelRequest, Text, ToolResult

NOTE = (
    "\n\n[The connection broke while you were answering. The reader has already received this "
    "beginning of your answer:\n{said}\nContinue from exactly where it stops. Do not repeat any of "
    "it and do not mention the break.]"
)
LOOK = 80  # characters of a continuation that are looked at before any is shown
LEAST = 12  # shorter repetitions are ordinary language


def continued(request: ModelRequest, said: str) -> ModelRequest:
    """The same request, from the end of what was said."""
    if not said.strip() or not request.messages:
        return request
    *before, last = request.messages
    note = Text(text=NOTE.format(said=said))
    match last.parts:
        case (*parts, ToolResult() as result):
            noted = (*parts, replace(result, parts=(*result.parts, note)))
        case _:
            noted = (*last.parts, note)
    return replace(request, messages=(*before, Message(role=last.role, parts=noted)))


class Rest:
    """Lets through of a continuation what was not said before."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._held = ""
        self._open = not said

    def feed(self, text: str) -> str:
        """What of it is new; empty while that cannot be told."""
        if self._open:
            return text
        self._held += text
        if self._held.startswith(self._said):
            return self.close()
        may_be_a_restart = self._said.startswith(self._held)
        return "" if may_be_a_restart or len(self._held) < LOOK else self.close()

    def close(self) -> str:
        """Nothing more will come: what was held is told apart now."""
        held, self._held, self._open = self._held, "", True
        if held.startswith(self._said):
            return held[len(self._said) :]
        if self._said.startswith(held):
            return ""
        return held[_overlap(self._said, held) :]


def _overlap(said: str, following: str) -> int:
    """How many characters at the end of the one begin the other."""
    longest = min(len(said), len(following))
    for length in range(longest, LEAST - 1, -1):
        if said.endswith(following[:length]):
            return length
    return 0
