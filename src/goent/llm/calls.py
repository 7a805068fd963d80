"""When has a tool call been told well enough to be passed on? When its name is known."""

from collections.abc import Iterator

from goent.llm.talk import ToolPiece


class _Held:
    __slots__ = ("arguments", "id", "name", "number")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments = ""
        self.number: int | None = None  # once it has been passed on


class CallsInPieces:
    """Pieces as they come in; out go pieces of which each call's first has its id and name.

    `first` is the number of the first call, where others have been written before.
    """

    def __init__(self, *, first: int = 0) -> None:
        self._next = first
        self._held: dict[int, _Held] = {}

    @property
    def begun(self) -> bool:
        return bool(self._held or self._next)

    def add(self, piece: ToolPiece) -> Iterator[ToolPiece]:
        held = self._held.setdefault(piece.index, _Held())
        if held.number is not None:
            if piece.arguments:
                held.arguments = piece.arguments  # any of them will do
                yield ToolPiece(index=held.number, arguments=piece.arguments)
            return
        held.id = held.id or piece.id
        held.name = held.name or piece.name
        held.arguments += piece.arguments
        if held.id and held.name:
            yield self._begin(held)

    def rest(self) -> Iterator[ToolPiece]:
        """The end: ids that never came are ours, and no arguments are an empty object.

        A call without a name is none.
        """
        for held in self._held.values():
            if held.number is not None and not held.arguments:
                yield ToolPiece(index=held.number, arguments="{}")
            elif held.number is None and held.name:
                held.arguments = held.arguments or "{}"
                yield self._begin(held)

    def _begin(self, held: _Held) -> ToolPiece:
        held.number, self._next = self._next, self._next + 1
        call_id = held.id or f"call_goent_{held.number}"
        return ToolPiece(index=held.number, id=call_id, name=held.name, arguments=held.arguments)
