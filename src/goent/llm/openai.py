"""How does one talk to a vendor of OpenAI's dialect? Chat Completions."""

from collections.abc import Iterable
from typing import Protocol

from goent.llm import openai_request
from goent.llm.openai_reader import OpenAiReader, read_answer
from goent.llm.openai_writer import OpenAiWriter, write_answer
from goent.llm.place import START, Place
from goent.llm.talk import Chunk, ModelRequest


class _Placed(Protocol):
    @property
    def place(self) -> Place: ...


class OpenAiCodec:
    """Chat Completions, both directions."""

    path = "chat/completions"
    headers = ((b"content-type", b"application/json"),)

    def encode(self, request: ModelRequest) -> bytes:
        return openai_request.encode(request)

    def decode(self, body: bytes) -> ModelRequest:
        return openai_request.decode(body)

    def reader(self) -> OpenAiReader:
        return OpenAiReader()

    def writer(
        self, model: str, *, after: _Placed | None = None, tell_usage: bool = True
    ) -> OpenAiWriter:
        return OpenAiWriter(model, after=after.place if after else START, tell_usage=tell_usage)

    def read_answer(self, body: bytes) -> tuple[Chunk, ...]:
        return read_answer(body)

    def write_answer(self, model: str, chunks: Iterable[Chunk]) -> bytes:
        return write_answer(model, chunks)
