"""Runs an OpenCode server, or reaches one that somebody else runs; for workers and evaluations.

Both kinds look alike to a session. A server of ours is a child process: the pool starts it, watches
whether it answers, and ends it. A server at an address is never started nor stopped; its
configuration and keys are its own, so its model calls do not pass our gate and are metered by what
OpenCode reports. It must see the same files.
"""

import os
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Self

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from goent.agents.opencode_program import OPENCODE_NAME, check_version
from goent.domain.errors import OpenCodeMissing, ProtocolError, WorkerCrashed, WorkerError
from goent.domain.ports import Gate, WorkerSpec
from goent.domain.types import Value
from goent.opencode.config_overlay import WARM
from goent.opencode.event_stream import ALL_EVENTS, EventRouter
from goent.opencode.opencode_process import BOOT_TIMEOUT_S, OpenCodeProcess
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.serve_session import ServeSession
from goent.opencode.server_api import SERVER_USER, OpenCodeClient, TurnInput
from goent.opencode.session import BaseSession
from goent.proc.child_process import SupervisedProcess, guarded

CONNECT_INTERVAL_S = 0.1
# OpenCode never answers a request that arrives at the moment it begins to listen.
FIRST_ANSWER_TIMEOUT_S = 0.5
GONE_AFTER_S = 30.0  # without its event stream
GONE_POLL_S = 1.0


class ServeProcess(OpenCodeProcess):
    """One `opencode serve`. It does not outlive us, even if we are killed."""

    event_kinds = ALL_EVENTS

    @classmethod
    @asynccontextmanager
    async def running(cls, launch: OpenCodeLaunch, mark: str) -> AsyncGenerator[Self]:
        if launch.port:
            await to_thread.run_sync(_check_port, launch.hostname, launch.port)
        async with guarded(mark), super().running(launch, mark) as process:
            yield process

    @classmethod
    def _arguments(cls, launch: OpenCodeLaunch, port: int) -> Sequence[str]:
        return ("serve", f"--hostname={launch.hostname}", f"--port={port}", *launch.arguments)

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        return await ServeSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        session = (await self.client.create(str(cwd), title="warm", rules=())).id
        gate.bind(token=self.token, session=session, worker=None)
        try:
            prompt = TurnInput(model=WARM, text="ok")
            await self.client.ask(session, prompt, patience=BOOT_TIMEOUT_S)
        finally:
            gate.unbind(session)
            with anyio.CancelScope(shield=True), suppress(WorkerError):
                await self.client.delete(session)

    async def _connect(self) -> None:
        self._tasks.start_soon(self._wait)
        self._tasks.start_soon(_drain, self._child)
        wait = FIRST_ANSWER_TIMEOUT_S
        while not self.gone.is_set():
            # Its own password is needed for the answer: another server there does not pass.
            began = anyio.current_time()
            if await self.client.is_healthy(wait):
                with suppress(ProtocolError):
                    version = (await self.client.health()).version
                    check_version(version, repr(str(self._launch.program)))
                    return
            elif anyio.current_time() - began >= wait:
                wait *= 2
            await anyio.sleep(CONNECT_INTERVAL_S)
        raise WorkerCrashed("it ended before it was ready")

    async def _wait(self) -> None:
        await self._child.wait()
        self.gone.set()


def _check_port(hostname: str, port: int) -> None:
    """OpenCode itself reports only an unexpected error. An unknown host name is left to it."""
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return
    family, *_, where = found[0]
    try:
        socket.create_server(where[:2], family=family).close()
    except OSError as error:
        raise WorkerCrashed(
            f"{OPENCODE_NAME} cannot listen on port {port} of {hostname!r}: "
            f"{os.strerror(error.errno or 0)}; end whoever listens there, or set another `port`, "
            "or none to use a free one"
        ) from error


async def _drain(child: SupervisedProcess) -> None:
    """Read its standard output, where it announces that it listens: a full pipe would stop it."""
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            await child.stdout.receive()


class ServerAddress(Value, frozen=True, kw_only=True):
    """A server that somebody else runs: where it is, by which setting, and what may help."""

    url: str
    setting: str
    password: str
    password_remedy: str
    remedy: str
    user: str = SERVER_USER

    @property
    def label(self) -> str:
        return f"{self.setting} {self.url!r}"


class ExternalServer:
    """A server that somebody else runs, started without our guard; `gone` is set by `watch`."""

    token = ""
    pid = None
    guard = None

    def __init__(self, address: ServerAddress, client: OpenCodeClient) -> None:
        self.client = client
        self.router = EventRouter(client, ALL_EVENTS)
        self.gone = anyio.Event()
        self._address = address

    @classmethod
    @asynccontextmanager
    async def reached(cls, address: ServerAddress) -> AsyncGenerator[Self]:
        """Raises `OpenCodeMissing` or `UnsupportedVersion` if no server of use is there."""
        async with OpenCodeClient.at(address.url, address.password, user=address.user) as client:
            await _check_server(client, address)
            yield cls(address, client)

    async def watch(self, tasks: TaskGroup) -> None:
        """Follow its events, and notice when it stays away."""
        await tasks.start(self.router.run)
        tasks.start_soon(self._wait_until_gone)

    async def crash(self) -> WorkerCrashed:
        return WorkerCrashed(
            f"the OpenCode server at {self._address.url!r} does not answer any more: "
            f"{self._address.remedy}"
        )

    async def is_ending(self) -> bool:
        return self.gone.is_set()

    async def _wait_until_gone(self) -> None:
        while not self.gone.is_set():
            await anyio.sleep(GONE_POLL_S)
            broken = self.router.broken_since
            if broken is not None and anyio.current_time() - broken > GONE_AFTER_S:
                self.gone.set()


async def _check_server(client: OpenCodeClient, address: ServerAddress) -> None:
    try:
        health = await client.health()
    except ProtocolError as error:
        if f": {HTTPStatus.UNAUTHORIZED.value} " in f"{error} ":
            raise OpenCodeMissing(
                f"{address.label} refuses the password: {address.password_remedy}"
            ) from error
        raise OpenCodeMissing(
            f"{address.label} does not answer ({error}): {address.remedy}"
        ) from error
    if health.version:
        check_version(health.version, address.label, remedy=address.remedy)
    if not health.healthy:
        raise OpenCodeMissing(f"{address.label} is not a healthy OpenCode server: {address.remedy}")
