"""Which words of a prompt are meant for the agent itself, and not for its model?"""

from collections.abc import Sequence

from goent.agent.content import Given, Words
from goent.domain.types import Value


class Command(Value, frozen=True, kw_only=True):
    """A slash command; `hint` says what may follow it."""

    name: str
    description: str
    hint: str = ""


class CommandCall(Value, frozen=True, kw_only=True):
    """A command as it was given."""

    name: str
    rest: str


COMMANDS = (
    Command(name="compact", description="Sum up the conversation to make room"),
    Command(name="cost", description="Show tokens and cost of this session"),
    Command(name="mode", description="Show or set the mode", hint="ask, accept-edits or plan"),
    Command(name="model", description="Show or set the model", hint="auto, or a model"),
)


def command_in(given: Sequence[Given]) -> CommandCall | None:
    """The command, if the prompt is one that we know; anything else goes to the model."""
    if len(given) != 1 or not isinstance(given[0], Words):
        return None
    name, _, rest = given[0].text.strip().partition(" ")
    known = any(name == f"/{command.name}" for command in COMMANDS)
    return CommandCall(name=name[1:], rest=rest.strip()) if known else None
