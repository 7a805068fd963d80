"""A tool whose arguments are decoded into a struct."""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from goent.agent.agent_ports import ToolInvocation, ToolMistake
from goent.domain.input_mistakes import ARGUMENTS, explain_undecodable


class ToolArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool. Unknown fields are mistakes."""


A = TypeVar("A", bound=ToolArguments)


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
            # Not strict: models sometimes write "5" for 5, or "true" for true.
            return msgspec.json.decode(arguments.strip() or b"{}", type=self._kind, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            mistake = explain_undecodable(error, arguments, self._kind, ARGUMENTS)
            raise ToolMistake(
                f"invalid arguments of {self.name}: {mistake}. It takes {self._fields()}."
            ) from None

    def _fields(self) -> str:
        return ", ".join(
            f"{field.name} (required)" if field.required else field.name
            for field in msgspec.structs.fields(self._kind)
        )


def arguments_schema(kind: type[Struct]) -> Raw:
    """A compact JSON schema: the root is the object itself, and other objects are inlined."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    for part in parts.values():
        for redundant in ("title", "description"):
            part.pop(redundant, None)
    schema = msgspec.json.encode(parts.pop(kind.__name__))
    for name, part in parts.items():
        schema = schema.replace(msgspec.json.encode({"$ref": name}), msgspec.json.encode(part))
    return Raw(schema)
