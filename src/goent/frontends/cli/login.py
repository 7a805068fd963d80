"""What does somebody see whose editor told them to log in? Keys are given to go-ent, not logins."""

import os
from collections.abc import Sequence

import anyio

from goent.agent.models import ModelChoice
from goent.agent.refusing import AuthRequired
from goent.composition.agent_app import open_agent
from goent.frontends.cli.client import Trouble


def log_in() -> int:
    """Well if there is a model to ask; how to give a key, if there is none."""
    found = anyio.run(_models)
    if isinstance(found, AuthRequired):
        raise Trouble(str(found), 1)
    print("go-ent's agent can ask:")
    for model in found:
        print(f"  {model.id}")
    print("There is nothing to do. In your editor, begin a new session.")
    return 0


async def _models() -> Sequence[ModelChoice] | AuthRequired:
    async with open_agent(os.environ) as agent:
        try:
            return await agent.ready()
        except AuthRequired as error:
            return error
