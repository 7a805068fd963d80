"""What have the agent and its subagents said and done so far? It is told while it grows, before the attempt is over."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from goent.drivers.opencode.events import MessageTold, PartGrew, PartTold, Told
from goent.drivers.opencode.shapes import Message, MessageInfo, Part
from goent.evals.ports import Witness
from goent.evals.targets.opencode.reading import traced
from goent.evals.targets.opencode.subagents import Spoken, in_order


class Growing:
    """The messages of one session and of its subagents', each in the order in which they began.

    Those in `seen` are of an earlier turn.
    """

    def __init__(self, session: str, witness: Witness, seen: Collection[str] = ()) -> None:
        self._session = session
        self._witness = witness
        self._seen = frozenset(seen)
        self._infos: dict[str, dict[str, MessageInfo]] = {}
        self._parts: dict[str, dict[str, Part]] = {}
        self._changed = False
        self._told: dict[str, Spoken] = {}
        self._numbers: dict[str, int] = {}
        self._order: list[str] = []

    def hear(self, told: Told) -> None:
        match told:
            case MessageTold(info=info) if info.role == "assistant" and info.id not in self._seen:
                self._infos.setdefault(info.session, {})[info.id] = info
                self._changed = True
            case PartTold(part=part):
                self._put(part)
            case PartGrew(field="text"):
                begun = self._parts.get(told.message, {}).get(told.part)
                if begun:
                    self._put(replace(begun, text=begun.text + told.delta))
            case _:
                pass

    def learn(self, session: str, messages: Iterable[Message]) -> None:
        """What they are in the end, and in which order, whatever the stream told of them."""
        earlier = self._infos.get(session, {})
        learned = self._infos[session] = {}
        for message in messages:
            if message.info.role == "assistant":
                learned[message.info.id] = message.info
                self._parts[message.info.id] = {part.id: part for part in message.parts}
        for name, info in earlier.items():
            learned.setdefault(name, info)
        self._changed = True

    def tell(self) -> None:
        """Let the witness have what has changed since the last time, and what stands elsewhere."""
        if not self._changed:
            return
        self._changed = False
        for place, spoken in enumerate(self.spoken):
            name = spoken.message.info.id
            before = self._put_at(place, name)
            if before is not None or spoken != self._told.get(name):
                self._told[name] = spoken
                number = self._numbers.setdefault(name, len(self._numbers))
                self._witness.message(number, traced(spoken), before=before)

    def _put_at(self, place: int, name: str) -> int | None:
        """The number of the message that it stands in front of now, if it did not."""
        there = self._order[place] if place < len(self._order) else None
        if there == name:
            return None
        if name in self._told:
            self._order.remove(name)
        self._order.insert(place, name)
        return None if there is None else self._numbers[there]

    @property
    def spoken(self) -> tuple[Spoken, ...]:
        sessions = {
            session: [self._message(info) for info in infos.values()]
            for session, infos in self._infos.items()
        }
        return in_order(self._session, sessions)

    def _message(self, info: MessageInfo) -> Message:
        return Message(info=info, parts=tuple(self._parts.get(info.id, {}).values()))

    def _put(self, part: Part) -> None:
        self._parts.setdefault(part.message, {})[part.id] = part
        self._changed = True
