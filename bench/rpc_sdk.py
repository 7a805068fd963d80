"""The measured programs on `agent-client-protocol`: `agent`, and the `client` that starts it."""

import asyncio
import sys
import time
from typing import Any

import acp
import msgspec
from acp.schema import PromptResponse, TextContentBlock
from bench.rpc import Row


class Agent:
    """Sends as many updates as the prompt says."""

    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn

    async def ext_method(self, method: str, params: dict[str, object]) -> dict[str, object]:
        return {"cpu": time.process_time()}

    async def prompt(
        self, session_id: str, prompt: list[TextContentBlock], **_extra: object
    ) -> PromptResponse:
        for number in range(int(prompt[0].text)):
            update = acp.update_agent_message_text(f"piece {number} ")
            update.message_id = "msg_1"
            await self._client.session_update(session_id=session_id, update=update)
        return PromptResponse(stop_reason="end_turn")


class Client:
    """Counts what it is told."""

    count = 0

    async def session_update(self, session_id: str, update: object, **_extra: object) -> None:
        self.count += 1

    def on_connect(self, conn: acp.Agent) -> None:
        return


async def client(messages: int) -> list[Row]:
    seen = Client()
    part: Any = seen  # the SDK takes one that does a part of its protocol
    rows: list[Row] = []
    command = (sys.executable, "-m", "bench.rpc_sdk", "agent")
    async with acp.spawn_agent_process(part, *command, transport_kwargs={"stderr": None}) as (
        connection,
        _process,
    ):
        before = (await connection.ext_method("cpu", {}))["cpu"]
        started = time.process_time()
        await connection.prompt(session_id="ses_1", prompt=[acp.text_block(str(messages))])
        spent = time.process_time() - started
        after = (await connection.ext_method("cpu", {}))["cpu"]
        rows.append(Row(stack="sdk", messages=messages, agent=after - before, client=spent))
    assert seen.count == messages
    return rows


if __name__ == "__main__":
    if sys.argv[1] == "agent":
        agent: Any = Agent()  # the SDK takes one that does a part of its protocol
        asyncio.run(acp.run_agent(agent))
    else:
        print(msgspec.json.encode(asyncio.run(client(int(sys.argv[2])))).decode())
