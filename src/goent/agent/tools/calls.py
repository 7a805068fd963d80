"""How are a tool's arguments read, and how does a call that was found good wait to be run?"""

from collections.abc import Awaitable, Callable
from functools import cache
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw, Struct

from goent.agent.ports import Call, Intent, Outcome, Report, ToolMistake


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model writes. What it writes beside the known fields is a mistake it is told of."""


A = TypeVar("A", bound=Arguments)


class Prepared:
    """A call that only has to be done."""

    def __init__(self, intent: Intent, doing: Callable[[Report], Awaitable[Outcome]]) -> None:
        self._intent = intent
        self._doing = doing

    @property
    def intent(self) -> Intent:
        return self._intent

    async def run(self, report: Report) -> Outcome:
        try:
            return await self._doing(report)
        except OSError as error:
            raise ToolMistake(f"the system refuses: {error}") from None


class ToolOf(Generic[A]):
    """A tool whose arguments are an `A`."""

    def __init__(
        self,
        name: str,
        kind: type[A],
        describe: Callable[[], str],
        look: Callable[[A], Awaitable[Call]],
    ) -> None:
        self.name = name
        self._kind = kind
        self._description = cache(describe)
        self._schema = cache(lambda: schema_of(kind))
        self._look = look

    @property
    def description(self) -> str:
        return self._description()

    @property
    def schema(self) -> Raw:
        return self._schema()

    async def prepare(self, arguments: bytes) -> Call:
        asked = self._read(arguments)
        try:
            return await self._look(asked)
        except OSError as error:
            raise ToolMistake(f"the system refuses: {error}") from None

    def _read(self, arguments: bytes) -> A:
        try:
            # Not strict: "5" for 5 and "true" for true are what models write now and then.
            return msgspec.json.decode(arguments.strip() or b"{}", type=self._kind, strict=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ToolMistake(
                f"the arguments of {self.name} cannot be used: {error}. It takes {self._fields()}."
            ) from None

    def _fields(self) -> str:
        return ", ".join(
            f"{field.name} (required)" if field.required else field.name
            for field in msgspec.structs.fields(self._kind)
        )


def schema_of(kind: type[Struct]) -> Raw:
    """Its JSON schema, small: the root is the object itself, and other objects stand where they are."""
    (_,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    for part in parts.values():
        for told_elsewhere in ("title", "description"):
            part.pop(told_elsewhere, None)
    schema = msgspec.json.encode(parts.pop(kind.__name__))
    for name, part in parts.items():
        schema = schema.replace(msgspec.json.encode({"$ref": name}), msgspec.json.encode(part))
    return Raw(schema)
