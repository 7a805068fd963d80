"""The protocol's own conformance suite, on `go-ent mcp --http`, in both eras.

Most of its scenarios call tools, prompts and resources that only its example server has. What fails
is listed here with the reason, so that nothing else may fail, and nothing here pass unnoticed.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from mcp_peers import NODE, NPM
from world import GO_ENT, a_cold_world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]
SUITE = NPM / "node_modules" / ".bin" / "conformance"

FIXTURES = """
Tools, prompts and resources of the suite's own, by name.
elicitation-sep1034-general elicitation-sep1330-general sep-2322-elicitation-incomplete
sep-2322-respect-client-capabilities sep-2322-multi-round-r1 sep-2322-multiple-inputs-incomplete
sep-2322-non-tool-incomplete sep-2322-request-state-incomplete sep-2322-result-type-included
sep-2322-reject-tampered-state json-schema-2020-12-tool-found prompts-get-embedded-resource
prompts-get-simple prompts-get-with-args prompts-get-with-image resources-read-binary
resources-read-text resources-subscribe resources-templates-read resources-unsubscribe
sep-2575-server-rejects-undeclared-capability sep-2575-missing-capability-http-400
tasks-per-request-meta-opt-in tasks-server-directed-creation-no-hint
sep-2663-durable-create-strong-consistency sep-2663-result-type-task-on-create
sep-2663-tasks-get-status-working sep-2663-tasks-get-status-completed
sep-2663-tool-error-uses-completed-status sep-2663-tasks-get-status-failed
sep-2663-cancel-ack-empty-result tasks-cancel-terminal-idempotent-ack
sep-2663-mrtr-synchronous-before-task-creation sep-2663-tasks-get-status-input-required
tasks-mrtr-tasks-update-resumes tasks-mrtr-partial-fulfillment
tasks-headers-tolerate-mcp-method-on-tools-call sep-2663-routing-headers-accepted-on-tasks-get
sep-2663-server-rejects-mismatched-mcp-name-on-tasks-get tasks-request-state-removal-setup
sep-2663-server-returns-missing-capability-when-required tasks-wire-field-renames
tasks-no-early-ttl-expiry tasks-no-related-task-meta-on-inlined-result tools-call-audio
tools-call-elicitation tools-call-embedded-resource tools-call-image tools-call-mixed-content
tools-call-with-progress
"""
NOT_OFFERED = """
Not offered, nor said to be: logging and completion, a client's models and folders, arguments in
headers, and streams that are taken up again.
completion-complete logging-set-level tools-call-with-logging
tools-call-sampling sep-2322-sampling-incomplete sep-2322-list-roots-incomplete
sep-2243-server-no-xmcp-tool sep-2243-server-decode-base64 sep-2243-server-validate-param-match
sep-2243-server-reject-invalid-param-chars sep-2243-server-reject-param-mismatch
incoming-sse-event
"""


def checks(listed: str) -> set[str]:
    return {word for word in listed.split() if "-" in word}


class Check(msgspec.Struct, frozen=True):
    id: str
    status: str


@asynccontextmanager
async def a_way_in(folder: Path) -> AsyncGenerator[str]:
    """The address of a `go-ent mcp --http` that asks for no token: the suite can send none."""
    async with a_cold_world(folder) as world:
        door = [*GO_ENT, "mcp", "--http", "--json"]
        async with told_by(door, b"}", cwd=world.project, env=world.env) as said:
            opened = msgspec.json.decode(said + b"}", type=dict[str, str])
            way_in = [str(NODE), str(NPM / "authorized.mjs"), opened["url"], opened["token"]]
            async with told_by(way_in, b"\n") as url:
                yield url.decode()


@asynccontextmanager
async def told_by(command: list[str], end: bytes, **options: Any) -> AsyncGenerator[bytes]:
    """What the program prints first, up to the end; it runs as long as the block."""
    async with await anyio.open_process(command, stderr=sys.stderr, **options) as process:
        assert process.stdout
        try:
            with anyio.fail_after(60):
                said = await BufferedByteReceiveStream(process.stdout).receive_until(end, 4096)
            yield said
        finally:
            process.terminate()


async def test_nothing_fails_but_what_does_not_apply(tmp_path: Path) -> None:
    results = tmp_path / "results"
    async with a_way_in(tmp_path) as url:
        command = [str(NODE), str(SUITE), "server", "--url", url, "--suite", "all"]
        with anyio.fail_after(300):
            ran = await anyio.run_process([*command, "-o", str(results)], check=False)
    found = [
        check
        for file in results.glob("*/checks.json")
        for check in msgspec.json.decode(file.read_bytes(), type=list[Check])
    ]
    failed = {check.id for check in found if check.status == "FAILURE"}
    assert failed == checks(FIXTURES) | checks(NOT_OFFERED), ran.stdout.decode()[-4000:]
    assert sum(check.status == "SUCCESS" for check in found) >= 130
