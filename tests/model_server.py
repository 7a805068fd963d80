"""Stand-ins for the model servers that people run themselves: their lists as they give them, no key.

The words come from a script: a chat completion is passed on to scripted models.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

Routes = Mapping[str, object]  # what is answered, by "GET /path"; of POSTs, by model too
CHAT = "POST /v1/chat/completions"


def ollama(models: Mapping[str, int], *, loaded: Mapping[str, int] | None = None) -> Routes:
    """Ollama 0.1x: trained windows by model; `loaded` is what it has given to those in memory."""
    listed = [
        {"name": name, "model": name, "size": 1, "digest": f"d-{name}", "details": {"family": "x"}}
        for name in models
    ]
    inside = [
        {"name": name, "model": name, "digest": f"d-{name}", "context_length": window}
        for name, window in (loaded or {}).items()
    ]
    shown = {
        f"POST /api/show {name}": {
            "license": "MIT",
            "parameters": 'stop    "<|im_end|>"\ntemperature    0.7',
            "template": "{{ .Prompt }}",
            "details": {"family": "qwen3", "parameter_size": "8B"},
            "model_info": {
                "general.architecture": "qwen3",
                "qwen3.context_length": window,
                "tokenizer.ggml.tokens": None,
            },
            "capabilities": ["embedding"] if "embed" in name else ["completion", "tools"],
        }
        for name, window in models.items()
    }
    return {
        "GET /v1/models": _list(*models, owner="library"),
        "GET /api/tags": {"models": listed},
        "GET /api/ps": {"models": inside},
        **shown,
    }


def lm_studio(models: Mapping[str, int], *, loaded: Mapping[str, int] | None = None) -> Routes:
    """LM Studio 0.3: it answers 200 to whatever it does not know."""
    rows = [
        {
            "id": name,
            "object": "model",
            "type": "embeddings" if "embed" in name else "llm",
            "publisher": "lmstudio-community",
            "arch": "qwen3",
            "state": "loaded" if loaded and name in loaded else "not-loaded",
            "max_context_length": window,
            **({"loaded_context_length": loaded[name]} if loaded and name in loaded else {}),
        }
        for name, window in models.items()
    ]
    unknown = {"error": "Unexpected endpoint or method."}
    return {
        "GET /v1/models": _list(*models, owner="organization_owner"),
        "GET /api/v0/models": {"object": "list", "data": rows},
        "GET /api/tags": unknown,
        "GET /props": unknown,
    }


def vllm(model: str, window: int) -> Routes:
    row: dict[str, object] = {
        "id": model,
        "object": "model",
        "created": 1,
        "owned_by": "vllm",
        "root": model,
        "parent": None,
        "max_model_len": window,
        "permission": [],
    }
    return {"GET /v1/models": {"object": "list", "data": [row]}}


def llama_cpp(model: str, window: int, *, trained: int = 131_072) -> Routes:
    """`llama-server`: the window that it was started with is in `/props`."""
    meta = {"vocab_type": 2, "n_vocab": 1, "n_ctx_train": trained, "n_params": 1, "size": 1}
    row = {"id": model, "object": "model", "created": 1, "owned_by": "llamacpp", "meta": meta}
    return {
        "GET /v1/models": {"object": "list", "data": [row]},
        "GET /props": {
            "default_generation_settings": {"n_ctx": window, "params": {}},
            "total_slots": 1,
            "model_path": f"/models/{model}.gguf",
        },
    }


def _list(*names: str, owner: str) -> object:
    rows = [{"id": name, "object": "model", "created": 1, "owned_by": owner} for name in names]
    return {"object": "list", "data": rows}


@dataclass
class Asked:
    """A request as it came in."""

    what: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ModelServer:
    """One server on loopback. Without `script`, a chat completion is of an unknown model."""

    port: int
    routes: Routes
    script: str | None = None  # where scripted models answer for it
    asked: list[Asked] = field(default_factory=list[Asked])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @classmethod
    @asynccontextmanager
    async def open(
        cls, routes: Routes, *, script: str | None = None, port: int = 0
    ) -> "AsyncGenerator[ModelServer]":
        listener = await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=port, reuse_port=False
        )
        server = cls(listener.extra(SocketAttribute.local_port), routes, script)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server._serve)
            yield server
            tasks.cancel_scope.cancel()

    def calls(self, what: str = CHAT) -> list[Asked]:
        return [asked for asked in self.asked if asked.what == what]

    async def _serve(self, stream: SocketStream) -> None:
        gone = (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError)
        async with stream:
            with suppress(*gone):
                await self._answer(stream)

    async def _answer(self, stream: SocketStream) -> None:
        """One request for each connection."""
        reader = BufferedByteReceiveStream(stream)
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode()
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        body = await reader.receive_exactly(int(headers.get("content-length", "0")))
        what = f"{method} {path}"
        self.asked.append(Asked(what, headers, body))
        if what == CHAT and self.script:
            await self._pass_on(stream, body)
            return
        if what == "POST /api/show":
            what = f"{what} {msgspec.json.decode(body)['model']}"
        if what == CHAT:
            model = msgspec.json.decode(body)["model"]
            message = f'model "{model}" not found, try pulling it first'
            error = {"message": message, "type": "api_error", "param": None, "code": None}
            await _reply(stream, 404, {"error": error})
        elif what in self.routes:
            await _reply(stream, 200, self.routes[what])
        else:
            await _reply(stream, 404, "404 page not found")

    async def _pass_on(self, stream: SocketStream, body: bytes) -> None:
        at = urlsplit(self.script or "")
        assert at.hostname and at.port
        head = (
            f"POST {at.path}/chat/completions HTTP/1.1\r\nhost: {at.netloc}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        async with await anyio.connect_tcp(at.hostname, at.port) as behind:
            await behind.send(head.encode() + body)
            async for piece in behind:
                await stream.send(piece)
                if piece.endswith(b"0\r\n\r\n"):
                    return


async def _reply(stream: SocketStream, status: int, told: object) -> None:
    body = msgspec.json.encode(told)
    head = (
        f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    await stream.send(head.encode() + body)
