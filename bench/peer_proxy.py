"""How do we come by a LiteLLM proxy to stand beside? In a virtual environment of its own.

LiteLLM wants other versions of what we are tested with.
"""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process
from bench.cost import Failed
from bench.installing import INSTALLED, install
from bench.stream_client import Door, Pace

VERSION = "1.106.2"
HOME = INSTALLED / f"litellm-{VERSION}"
START_S = 120.0


async def installed() -> None:
    """Raises `NotInstalled`."""
    venv = [sys.executable, "-I", "-m", "venv", str(HOME)]
    pip = [_program("python"), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--compile"]
    commands = (venv, [*pip, f"litellm[proxy]=={VERSION}"])
    await anyio.to_thread.run_sync(install, f"LiteLLM {VERSION}", HOME, commands)


def _program(name: str) -> str:
    return str(HOME / "bin" / name)


@asynccontextmanager
async def litellm(source: Door, pace: Pace, folder: Path) -> AsyncGenerator[tuple[int, Door]]:
    """A proxy of one process before the source, with its process id. Ended on leaving."""
    config = _config(source, pace, folder)
    # Without a key that is hard to guess it refuses to start.
    door = Door(port=_free_port(), path="/v1", key=f"sk-{secrets.token_hex(32)}")
    command = [_program("litellm"), "--config", str(config), "--host", "127.0.0.1"]
    command += ["--port", str(door.port), "--telemetry", "False"]
    log = folder / "log"
    with log.open("wb") as output:
        async with await anyio.open_process(
            command, env=_env(folder, door), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process:
            try:
                await _listening(process, door, log)
                yield process.pid, door
            finally:
                with suppress(ProcessLookupError):
                    process.kill()


def _config(source: Door, pace: Pace, folder: Path) -> Path:
    model = {"model": f"openai/{pace.model}", "api_base": source.url, "api_key": source.key}
    entry = {"model_name": pace.model, "litellm_params": model}
    folder.mkdir()
    path = folder / "config.yaml"
    path.write_bytes(msgspec.yaml.encode({"model_list": [entry]}))
    return path


def _env(home: Path, door: Door) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # nothing is fetched
        "LITELLM_MASTER_KEY": door.key,
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_LOG": "ERROR",
        "NO_PROXY": "127.0.0.1",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def _listening(process: Process, door: Door, log: Path) -> None:
    with anyio.move_on_after(START_S):
        while process.returncode is None:
            try:
                async with await anyio.connect_tcp("127.0.0.1", door.port):
                    return
            except OSError:
                await anyio.sleep(0.2)
    said = await anyio.Path(log).read_text(errors="replace")
    raise Failed(f"LiteLLM did not start within {START_S:g} s: {said[-1000:]}")
