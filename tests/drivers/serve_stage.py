"""The method `serve` behind the real gateway, and an `opencode serve` that is not go-ent's."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from opencode import LIGHT, opencode_binary
from opencode_stage import Stage, opencode_settings, settings

from goent.agents.driver_context import HOME_FOLDERS, DriverContext
from goent.opencode.driver import OpenCodeServeDriver
from goent.opencode.opencode_process import free_port
from goent.opencode.process_launch import HERMETIC_VARIABLES, QUIET_VARIABLES
from goent.opencode.server_api import OpenCodeClient
from goent.proc.child_process import supervised
from goent.proc.process_table import new_mark, new_owner
from goent.testing.script import Script
from goent.testing.scripted_server import ScriptedModels

PASSWORD = "somebody's own"


class ServeStage(Stage):
    """A stage with a driver for the method `serve`."""

    serving: OpenCodeServeDriver

    @asynccontextmanager
    async def running(self) -> "AsyncGenerator[ServeStage]":
        async with (
            self.gateway() as gate,
            OpenCodeServeDriver.running(
                DriverContext(
                    settings=lambda: self.settings,
                    environ=lambda: self.environ,
                    state_dir=self.folder / "state",
                ),
                gate,
                owner=new_owner("drivers"),
            ) as self.serving,
        ):
            yield self


@asynccontextmanager
async def serve_stage(script: Script, folder: Path) -> AsyncGenerator[ServeStage]:
    project = folder / "project"
    project.mkdir()
    async with ScriptedModels(script) as models:
        built = ServeStage(models, settings(models, project, opencode_settings()), folder)
        async with built.running():
            yield built


@asynccontextmanager
async def somebodys_server(models: ScriptedModels, folder: Path) -> AsyncGenerator[str]:
    """The address of an `opencode serve` with a configuration of its own."""
    options = {"baseURL": models.base_url("local"), "apiKey": "any"}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": options,
        "models": {"small": {"tool_call": True, "cost": {"input": 1, "output": 2}}},
    }
    content = {"provider": {"local": provider}, "enabled_providers": ["local"], "snapshot": False}
    env = {
        "PATH": os.environ["PATH"],
        **LIGHT,
        **{name: str(folder / place) for name, place in HOME_FOLDERS.items()},
        **dict.fromkeys((*QUIET_VARIABLES, *HERMETIC_VARIABLES), "1"),
        "OPENCODE_CONFIG_CONTENT": json.dumps(content),
        "OPENCODE_SERVER_PASSWORD": PASSWORD,
    }
    port = free_port()
    command = [str(opencode_binary()), "serve", "--hostname=127.0.0.1", f"--port={port}"]
    url, mark = f"http://127.0.0.1:{port}", new_mark(new_owner("somebody"))
    async with (
        supervised(command, cwd=folder, env=env, mark=mark),
        OpenCodeClient.at(url, PASSWORD) as client,
    ):
        with anyio.fail_after(60):
            while not await client.is_healthy(1):  # noqa: ASYNC110 (a server announces nothing)
                await anyio.sleep(0.1)
        yield url
