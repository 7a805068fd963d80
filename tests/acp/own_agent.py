"""A small agent on our own transport and messages, for a foreign client to drive."""

import anyio
import msgspec
from msgspec import Raw

from goent.acp import client_messages
from goent.acp.agent_messages import (
    REQUEST_PERMISSION,
    AcpPermissionOption,
    AgentMessageChunk,
    OptionSelected,
    PermissionRequest,
    PermissionResponse,
    SessionUpdate,
    ToolFields,
)
from goent.acp.client_messages import (
    AcpInitializeResult,
    AgentCapabilities,
    Implementation,
    NewSession,
    PromptResult,
)
from goent.acp.message_parts import AcpText, OptionChoice, SelectOption, plain_text
from goent.rpc.byte_streams import stdio
from goent.rpc.json_rpc import MethodNotFound
from goent.rpc.rpc_peer import Peer


class Agent:
    def __init__(self) -> None:
        self.peer: Peer
        self.cancelled = anyio.Event()

    async def request(self, method: str, params: Raw) -> object:
        match method:
            case client_messages.INITIALIZE:
                return AcpInitializeResult(
                    protocol_version=1,
                    agent_capabilities=AgentCapabilities(load_session=True),
                    agent_info=Implementation(name="own", version="1"),
                    auth_methods=(),
                )
            case client_messages.SESSION_NEW:
                choices = (
                    OptionChoice(value="a/one", name="One"),
                    OptionChoice(value="a/two", name="Two"),
                )
                model = SelectOption(
                    id="model", name="Model", current_value="a/one", options=choices
                )
                return NewSession(session_id="s1", config_options=(model,))
            case client_messages.SESSION_PROMPT:
                return PromptResult(
                    stop_reason=await self.turn(client_messages.decode_prompt(params))
                )
            case _:
                raise MethodNotFound(method)

    async def notification(self, method: str, params: Raw) -> None:
        if method == client_messages.SESSION_CANCEL:
            self.cancelled.set()

    async def turn(self, asked: client_messages.PromptParams) -> str:
        match plain_text(asked.prompt[0]).split():
            case ["stream", count]:
                for number in range(int(count)):
                    await self.say(asked.session_id, str(number))
            case ["ask"]:
                request = PermissionRequest(
                    session_id=asked.session_id,
                    tool_call=ToolFields(
                        tool_call_id="c1", title="touch x", raw_input=Raw(msgspec.json.encode({}))
                    ),
                    options=(AcpPermissionOption(option_id="yes", name="Yes", kind="allow_once"),),
                )
                reply = await self.peer.request(
                    REQUEST_PERMISSION, request, result=PermissionResponse
                )
                assert isinstance(reply.outcome, OptionSelected)
                await self.say(asked.session_id, reply.outcome.option_id)
            case _:
                await self.say(asked.session_id, "waiting")
                await self.cancelled.wait()
                return "cancelled"
        return "end_turn"

    async def say(self, session_id: str, text: str) -> None:
        update = AgentMessageChunk(content=AcpText(text=text))
        await self.peer.notify(
            client_messages.SESSION_UPDATE, SessionUpdate(session_id=session_id, update=update)
        )


async def main() -> None:
    agent = Agent()
    async with stdio() as (receive, send):
        agent.peer = Peer(receive, send, agent)
        await agent.peer.run()


anyio.run(main)
