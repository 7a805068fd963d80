"""How does another model go on where an answer broke off, without saying anything twice?

It is shown what was said so far and asked for the rest. Models do not always listen: some begin
again from the start, some repeat the last words. Both are taken out.
"""

from msgspec.structs import replace

from goent.llm.talk import Message, ModelRequest, Text

GO_ON = (
    "Your last answer was cut off by the network; its text above is what the user has already "
    "received. Continue from exactly where it stops. Do not repeat any of it, do not apologise."
)
LOOK = 80  # characters of a continuation that are looked at before any is shown
LEAST = 12  # shorter repetitions are ordinary language


def continued(request: ModelRequest, said: str) -> ModelRequest:
    """The same request, from the end of what was said."""
    if not said.strip():
        return request
    so_far = (
        Message(role="assistant", parts=(Text(text=said.rstrip()),)),
        Message(role="user", parts=(Text(text=GO_ON),)),
    )
    return replace(request, messages=(*request.messages, *so_far))


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
