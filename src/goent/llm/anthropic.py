"""How does one talk to a vendor of Anthropic's dialect? Messages."""

from collections.abc import Iterable
from typing import Protocol

from goent.llm import anthropic_request
from goent.llm.anthropic_reader import AnthropicReader, read_answer
from goent.llm.anthropic_writer import AnthropicWriter, write_answer
from goent.llm.place import START, Place
from goent.llm.talk import Chunk, ModelRequest


class _Placed(Protocol):
    @property
    def place(self) -> Place: ...


class AnthropicCodec:
    """Messages, both directions."""

    path = "messages"
    headers = (
        (b"content-type", b"application/json"),
        (b"anthropic-version", b"2023-06-01"),
    )

    def encode(self, request: ModelRequest) -> bytes:
        return anthropic_request.encode(request)

    def decode(self, body: bytes) -> ModelRequest:
        return anthropic_request.decode(body)

    def reader(self) -> AnthropicReader:
        return AnthropicReader()

    def writer(
        self, model: str, *, after: _Placed | None = None, tell_usage: bool = True
    ) -> AnthropicWriter:
        return AnthropicWriter(model, after=after.place if after else START)

    def read_answer(self, body: bytes) -> tuple[Chunk, ...]:
        return read_answer(body)

    def write_answer(self, model: str, chunks: Iterable[Chunk]) -> bytes:
        return write_answer(model, chunks)
