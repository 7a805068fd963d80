"""What can be set for a session, as a client shows it?"""

from itertools import groupby

import msgspec
from msgspec import UNSET, Raw

from goent.acp.messages import SessionMode, SessionModes
from goent.acp.options import Choice, ConfigOption, SelectOption
from goent.acp.updates import AvailableCommand, AvailableCommandsUpdate
from goent.agent.commands import COMMANDS, Command
from goent.agent.models import AUTO, ModelChoice
from goent.agent.session import Options

MODE, MODEL = "mode", "model"
NAME = "go-ent"
BY_TASK = ModelChoice(id=AUTO, name="Auto", description="The task decides which model is asked")

MODES = (
    SessionMode(id="ask", name="Ask", description="Asks before it changes files or runs commands"),
    SessionMode(
        id="accept-edits",
        name="Accept edits",
        description="Changes files in the session's directories, and asks before it runs commands",
    ),
    SessionMode(id="plan", name="Plan", description="Looks and plans, and changes nothing"),
)


def modes(options: Options) -> Raw:
    """For clients from before there were options."""
    state = SessionModes(current_mode_id=options.mode, available_modes=MODES)
    return Raw(msgspec.json.encode(state))


def config_options(options: Options) -> tuple[ConfigOption, ...]:
    model = SelectOption(
        id=MODEL,
        name="Model",
        category=MODEL,
        description="Which model the agent asks",
        current_value=options.model,
        options=_models(options),
    )
    mode = SelectOption(
        id=MODE,
        name="Mode",
        category=MODE,
        description="What the agent may do without asking",
        current_value=options.mode,
        options=tuple(
            Choice(value=mode.id, name=mode.name, description=mode.description) for mode in MODES
        ),
    )
    return (model, mode)


def available_commands() -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        available_commands=tuple(
            AvailableCommand(
                name=command.name,
                description=command.description,
                input=_hint(command) if command.hint else UNSET,
            )
            for command in COMMANDS
        )
    )


def _models(options: Options) -> tuple[Choice, ...]:
    """By backend. A client must find the current one among them, and the way back to `auto`."""
    models = (BY_TASK, *options.models)
    if all(model.id != options.model for model in models):
        models = (*models, ModelChoice(id=options.model, name=options.model))
    in_order = sorted(models, key=lambda model: model.group)  # those of no backend come first
    return tuple(
        Choice(group=group or NAME, name=group or NAME, options=tuple(map(_choice, members)))
        for group, members in groupby(in_order, key=lambda model: model.group)
    )


def _choice(model: ModelChoice) -> Choice:
    return Choice(
        value=model.id, name=model.name or model.id, description=model.description or None
    )


def _hint(command: Command) -> Raw:
    return Raw(msgspec.json.encode({"hint": command.hint}))
