"""A tool whose arguments are decoded into a struct, and a call that is ready to run."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from goent.agent.agent_ports import (
    OnToolProgress,
    ToolIntent,
    ToolInvocation,
    ToolMistake,
    ToolOutcome,
)
from goent.domain.input_mistakes import ARGUMENTS, explain_undecodable


class ToolArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model writes. What it writes beside the known fields is a mistake it is told of."""


A = TypeVar("A", bound=ToolArguments)


class PreparedInvocation:
    """A call that only has to be done."""

    def __init__(
        self, intent: ToolIntent, doing: Callable[[OnToolProgress], Awaitable[ToolOutcome]]
    ) -> None:
        self._intent = intent
        self._work = doing

    @property
    def intent(self) -> ToolIntent:
        return self._intent

    async def run(self, report: OnToolProgress) -> ToolOutcome:
        try:
            return await self._work(report)
        except OSError as error:
            raise ToolMistake(f"the system refuses: {error}") from None


class TypedTool(Generic[A]):
    """A tool whose arguments are an `A`."""

    def __init__(
        self,
        name: str,
        kind: type[A],
        describe: Callable[[], str],
        look: Callable[[A], Awaitable[ToolInvocation]],
    ) -> None:
        self.name = name
        self._kind = kind
        self._description = cache(describe)
        self._schema = cache(lambda: arguments_schema(kind))
        self._inspect = look

    @property
    def description(self) -> str:
        return self._description()

    @property
    def schema(self) -> Raw:
        return self._schema()

    async def prepare(self, arguments: bytes) -> ToolInvocation:
        asked = self._read(arguments)
        try:
            return await self._inspect(asked)
        except OSError as error:
            raise ToolMistake(f"the system refuses: {error}") from None

    def _read(self, arguments: bytes) -> A:
        try:
            # Not strict: "5" for 5 and "true" for true are what models write now and then.
            return msgspec.json.decode(arguments.strip() or b"{}", type=self._kind, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            mistake = explain_undecodable(error, arguments, self._kind, ARGUMENTS)
            raise ToolMistake(
                f"the arguments of {self.name} cannot be used: {mistake}. It takes {self._fields()}."
            ) from None

    def _fields(self) -> str:
        return ", ".join(
            f"{field.name} (required)" if field.required else field.name
            for field in msgspec.structs.fields(self._kind)
        )


def arguments_schema(kind: type[Struct]) -> Raw:
    """Its JSON schema, small: the root is the object itself, and other objects stand where they are."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    for part in parts.values():
        for told_elsewhere in ("title", "description"):
            part.pop(told_elsewhere, None)
    schema = msgspec.json.encode(parts.pop(kind.__name__))
    for name, part in parts.items():
        schema = schema.replace(msgspec.json.encode({"$ref": name}), msgspec.json.encode(part))
    return Raw(schema)
