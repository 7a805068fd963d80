"""What can be typed instead of a prompt? A session takes these as text that begins with `/`."""

from goent.domain.types import Value


class Command(Value, frozen=True, kw_only=True):
    """A slash command; `hint` says what may follow its name."""

    name: str
    description: str
    hint: str = ""


COMMANDS = (
    Command(name="compact", description="Sum up the conversation, and go on with the summary"),
    Command(
        name="model", description="Say which model is used, or use another", hint="provider/model"
    ),
    Command(
        name="mode", description="Say which mode is on, or change it", hint="ask|accept-edits|plan"
    ),
    Command(name="cost", description="Say what the session has cost, and how full the context is"),
)
