"""How does a tool of an MCP server become a tool of the agent?"""

import msgspec
from msgspec import Raw

from goent.agent.mcp.line import ServerTrouble
from goent.agent.mcp.offers import Offer
from goent.agent.mcp.results import cut, outcome_of
from goent.agent.mcp.server import Server
from goent.agent.ports import Intent, Need, Outcome, Report, ToolMistake
from goent.rpc import BadReply, RpcError


class McpTool:
    """What it does, only its server knows: so it always needs a permission."""

    def __init__(self, server: Server, offer: Offer, name: str) -> None:
        self.name = name
        self._server = server
        self._offer = offer

    @property
    def description(self) -> str:
        return self._offer.description

    @property
    def schema(self) -> Raw:
        return self._offer.schema

    async def prepare(self, arguments: bytes) -> "McpCall":
        try:
            msgspec.json.decode(arguments or b"{}", type=dict[str, Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ToolMistake(
                f"the arguments of {self.name!r} must be a JSON object: {error}"
            ) from error
        server, offer = self._server, self._offer
        intent = Intent(
            kind="other",
            title=f"{server.name}: {offer.title}",
            need=Need(permission="mcp", patterns=(self.name,), always=(self.name,)),
            alone=not offer.reads,
        )
        return McpCall(server, offer.tool, Raw(arguments or b"{}"), intent)


class McpCall:
    """One call. Cancelled, the server is told."""

    def __init__(self, server: Server, tool: str, arguments: Raw, intent: Intent) -> None:
        self.intent = intent
        self._server = server
        self._tool = tool
        self._arguments = arguments

    async def run(self, report: Report) -> Outcome:
        try:
            return outcome_of(await self._server.call(self._tool, self._arguments))
        except RpcError as refusal:
            return self._failed(f"refused the call: {refusal}")
        except TimeoutError:
            return self._failed("did not answer in time: the call was given up")
        except ServerTrouble as trouble:
            return self._failed(f"cannot be used: {trouble}")
        except (msgspec.DecodeError, RecursionError, BadReply) as error:
            return self._failed(f"gave an answer that makes no sense: {error}")

    def _failed(self, why: str) -> Outcome:
        return Outcome(text=cut(f"The MCP server {self._server.name!r} {why}"), failed=True)
