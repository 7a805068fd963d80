"""go-ent with providers of which every byte is scripted: one backend for each thing that is wrong."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from contract_stage import KEY, World
from fake_provider import FakeProvider, Script
from opencode import LIGHT, opencode_binary

from goent.composition.app import open_app
from goent.opencode.process_launch import fake_plugin_install
from goent.testing.script import Script as Lines
from goent.testing.script import case, openai, say
from goent.testing.scripted_server import ScriptedModels

NOBODY = "http://127.0.0.1:1/v1"  # where nobody listens
WELL = Lines(providers={"moonshot": openai(case(None, say("Heard.")), key=KEY)})


class BadWorld(World):
    """`providers` by the name of their backend; `moonshot` is the one with which all is well."""

    providers: Mapping[str, FakeProvider] = {}

    def asked(self, backend: str) -> list[bytes]:
        """The bodies of the calls that the backend has got."""
        return [seen.body for seen in self.providers[backend].seen]


@asynccontextmanager
async def bad_world(folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[BadWorld]:
    home, project = folder / "home", folder / "project"
    for path in (home / ".config" / "opencode", project / ".goent"):
        path.mkdir(parents=True)
    async with AsyncExitStack() as stack:
        models = await stack.enter_async_context(ScriptedModels(WELL))
        providers: dict[str, FakeProvider] = {}
        for name, script in scripts.items():
            providers[name] = await stack.enter_async_context(FakeProvider.open())
            providers[name].script = script
        urls = {name: provider.base_url for name, provider in providers.items()}
        urls |= {"nobody": NOBODY, "moonshot": f"{models.url}/moonshot/v1"}
        fake_plugin_install(home / ".config" / "opencode")
        config = {
            "model": "moonshot/glm-4",
            "enabled_providers": [*urls],
            "agent": {"title": {"disable": True}},
            "provider": {name: _entry(url) for name, url in urls.items()},
        }
        (home / ".config" / "opencode" / "opencode.json").write_bytes(msgspec.json.encode(config))
        (project / ".goent" / "config.yaml").write_text(
            "opencode: {profile: hermetic, warm: false}\nlimits: {workers: 30, stall_s: 600}\n"
        )
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "GOENT_OPENCODE": str(opencode_binary()),
            **LIGHT,
            "SCRIPTED_KEY": KEY,
        }
        app = await stack.enter_async_context(open_app(project, environ))
        world = BadWorld(app, models, folder)
        world.providers = providers
        yield world


def _entry(url: str) -> object:
    return {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "{env:SCRIPTED_KEY}"},
        "models": {"glm-4": {"tool_call": True, "limit": {"context": 9_000_000, "output": 8192}}},
    }
