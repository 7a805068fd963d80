"""How does an agent's session get the model that the worker was promised?"""

from goent.acp.messages import NewSession, OpenedSession
from goent.acp.options import find_option
from goent.domain.errors import UnknownModel
from goent.domain.types import Provider
from goent.drivers.acp_connection import AgentConnection
from goent.drivers.agent.launch import Launch

MOST_NAMES = 20
Opened = NewSession | OpenedSession


async def choose_model(
    connection: AgentConnection, session: str, opened: Opened, provider: Provider, launch: Launch
) -> None:
    """By the option for it, else by the older request. Raises `UnknownModel` with the names it has.

    go-ent's own agent was started with the model; it is only told if it has come back with another.
    """
    if not provider.model:
        return
    wanted = (provider.model, provider.opencode_model, provider.name)
    option = find_option(opened.config_options, "model")
    if option:
        if option.current_value in wanted:
            return
        choices = tuple(choice.value for choice in option.choices)
        name = _among(wanted, choices, launch)
        await connection.set_model(session, name, option=option.id)
    elif opened.models:
        if opened.models.current_model_id in wanted:
            return
        choices = tuple(model.model_id for model in opened.models.available_models)
        await connection.set_legacy_model(session, _among(wanted, choices, launch))
    elif not launch.own:
        raise UnknownModel(
            f"{launch.name} offers no choice of a model, so {provider.model!r} cannot be had: "
            f"leave `models` out of agents.{launch.name} in .goent/config.yaml"
        )


def _among(wanted: tuple[str, ...], choices: tuple[str, ...], launch: Launch) -> str:
    found = next((name for name in wanted if name in choices), None)
    if found is None:
        more = f" and {len(choices) - MOST_NAMES} more" if len(choices) > MOST_NAMES else ""
        names = ", ".join(choices[:MOST_NAMES]) or "none"
        raise UnknownModel(f"{launch.name} has no model {wanted[0]!r}; it has: {names}{more}")
    return found
