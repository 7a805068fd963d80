"""An agent on the official SDK: streams, asks for permission, and can be cancelled."""

import asyncio
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SetSessionConfigOptionResponse,
    TextContentBlock,
    ToolCallUpdate,
)


def model_option(value: str) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect(
        id="model",
        name="Model",
        type="select",
        category="model",
        current_value=value,
        options=[SessionConfigSelectOption(value=name, name=name) for name in ("a/one", "a/two")],
    )


class Agent:
    def on_connect(self, conn: acp.Client) -> None:
        self._client = conn
        self._cancelled = asyncio.Event()

    async def initialize(self, protocol_version: int, **_extra: Any) -> acp.InitializeResponse:
        return acp.InitializeResponse(
            protocol_version=protocol_version,
            agent_capabilities=AgentCapabilities(load_session=True),
        )

    async def new_session(self, cwd: str, **_extra: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="s1", config_options=[model_option("a/one")])

    async def load_session(self, cwd: str, session_id: str, **_extra: Any) -> None:
        await self._say(session_id, "before")

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_extra: Any
    ) -> SetSessionConfigOptionResponse:
        if value == "a/none":
            raise acp.RequestError.invalid_params({"model": value})
        kept = "a/one" if value == "a/ignored" else str(value)
        return SetSessionConfigOptionResponse(config_options=[model_option(kept)])

    async def prompt(
        self, session_id: str, prompt: list[TextContentBlock], **_extra: Any
    ) -> PromptResponse:
        match prompt[0].text.split():
            case ["stream", count]:
                for number in range(int(count)):
                    await self._say(session_id, str(number))
            case ["ask"]:
                answer = await self._client.request_permission(
                    session_id=session_id,
                    tool_call=ToolCallUpdate(tool_call_id="c1", title="rm -rf /", kind="execute"),
                    options=[PermissionOption(option_id="no", name="No", kind="reject_once")],
                )
                await self._say(session_id, answer.outcome.outcome)
            case ["write", path]:
                await self._client.write_text_file(session_id=session_id, path=path, content="x")
                await self._client.read_text_file(session_id=session_id, path=path)
            case _:
                await self._say(session_id, "waiting")
                await self._cancelled.wait()
                self._cancelled.clear()
                return PromptResponse(stop_reason="cancelled")
        return PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id: str, **_extra: Any) -> None:
        self._cancelled.set()

    async def close_session(self, session_id: str, **_extra: Any) -> None:
        return None

    async def _say(self, session_id: str, text: str) -> None:
        await self._client.session_update(
            session_id=session_id, update=acp.update_agent_message_text(text)
        )


agent: Any = Agent()  # the SDK takes one that does a part of its protocol
asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))
