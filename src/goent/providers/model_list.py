"""Asks the user's own model servers for their models and context windows.

Only servers that the settings name are asked. The list itself is OpenAI's, but each kind of server
reports windows in its own way. The window of a loaded model comes before what the model could hold.
"""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from urllib.parse import urlsplit

import anyio
import msgspec
from msgspec import Raw, Struct, field

from goent.domain.errors import ProviderRefused, ServerNotRunning, WorkerError
from goent.domain.local_servers import (
    LOCAL_SERVERS,
    LocalServer,
    ModelListing,
    ServedModel,
    is_this_machine,
    not_running_message,
)
from goent.domain.settings import Settings
from goent.domain.types import Provider, Secret
from goent.providers.call_plan import CallTarget, target_for
from goent.providers.connections import Connections, ModelCall, read_whole

ANSWER_S = 2.0  # for all requests to one server
FRESH_S = 10.0  # for which an answer is reused
MAX_LIST_BYTES = 8 * 1024 * 1024
MAX_MODELS = 100
MAX_NAME = 200
MAX_PARALLEL = 4
FIRST_ERROR_STATUS = 300
_CONTEXT = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)

T = TypeVar("T")


class _Meta(Struct):
    """llama.cpp: the window that it was started with, and the one that the model was trained for."""

    n_ctx: int | None = None
    n_ctx_train: int | None = None


class _Served(Struct):
    """An entry of a list in OpenAI's form, with what vLLM, llama.cpp and LM Studio add."""

    id: str
    owned_by: str | None = None
    type: str | None = None
    max_model_len: int | None = None
    meta: _Meta | None = None
    max_context_length: int | None = None
    loaded_context_length: int | None = None

    @property
    def loaded(self) -> int | None:
        """The window that the server was started with."""
        started = self.meta and self.meta.n_ctx
        return self.max_model_len or self.loaded_context_length or started

    @property
    def window(self) -> int | None:
        """The loaded window, or the one that the model was made for."""
        return self.loaded or self.max_context_length or (self.meta and self.meta.n_ctx_train)


class _List(Struct):
    data: list[_Served]


class _Settings(Struct):
    n_ctx: int | None = None


class _Props(Struct):
    default_generation_settings: _Settings


class _OllamaModel(Struct):
    name: str
    digest: str = ""
    context_length: int | None = None


class _OllamaList(Struct):
    models: list[_OllamaModel]


class _OllamaDetails(Struct):
    model_info: dict[str, Raw] = field(default_factory=dict[str, Raw])
    parameters: str = ""
    capabilities: list[str] | None = None

    @property
    def window(self) -> int | None:
        if configured := _CONTEXT.search(self.parameters):
            return int(configured[1])
        lengths = (raw for key, raw in self.model_info.items() if key.endswith(".context_length"))
        return next((_number(raw) for raw in lengths), None)

    @property
    def talks(self) -> bool:
        return self.capabilities is None or "completion" in self.capabilities


class ModelLists:
    """The port `ModelServers`. `on_update` is called with all current listings, by backend."""

    def __init__(
        self,
        connections: Connections,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        on_update: Callable[[Mapping[str, ModelListing]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connections = connections
        self._settings = settings
        self._environ = environ
        self._on_update = on_update
        self._clock = clock
        self._listings: dict[str, ModelListing] = {}
        self._asked_at: dict[str, float] = {}
        self._shown: dict[tuple[str, str, str], _OllamaDetails] = {}
        self._loaded: dict[tuple[str, str], int] = {}
        self._asking = anyio.Lock()

    async def refresh(self) -> None:
        """Ask the servers that have not been asked recently, for a few seconds at most."""
        async with self._asking:
            targets = list(local_targets(self._settings(), self._environ()))
            due = [each for each in targets if self._is_due(each)]
            async with anyio.create_task_group() as group:
                for each in due:
                    group.start_soon(self._refresh_one, each)
            names = {each.provider.backend for each in targets}
            self._listings = {k: v for k, v in self._listings.items() if k in names}
            self._on_update(dict(self._listings))

    def trouble(self, backend: str) -> str:
        listing = self._listings.get(backend)
        return listing.trouble if listing else ""

    def _is_due(self, target: CallTarget) -> bool:
        listing = self._listings.get(target.provider.backend)
        if listing is None or listing.base_url != target.base_url:
            return True
        if listing.trouble and is_this_machine(target.base_url):
            return True  # it may have been started, and asking takes no time
        return self._clock() - self._asked_at[target.provider.backend] > FRESH_S

    async def _refresh_one(self, target: CallTarget) -> None:
        name, before = target.provider.backend, self._listings.get(target.provider.backend)
        listing = await self.ask(target)
        if listing.trouble and before and before.base_url == listing.base_url:
            # Keep its models: workers' sessions must not change because it restarts.
            listing = msgspec.structs.replace(listing, models=before.models)
        self._listings[name], self._asked_at[name] = listing, self._clock()

    async def ask(self, target: CallTarget) -> ModelListing:
        """The server's current listing, with any trouble in it; raises nothing."""
        trouble = f"{target.place} did not list its models within {ANSWER_S:g} s"
        try:
            with anyio.move_on_after(ANSWER_S):
                models = await self._models(target)
                return ModelListing(base_url=target.base_url, models=tuple(models)[:MAX_MODELS])
        except ServerNotRunning:
            trouble = not_running_message(target.provider.backend, target.base_url)
        except WorkerError as error:
            trouble = str(error)
        return ModelListing(base_url=target.base_url, trouble=trouble)

    async def _models(self, target: CallTarget) -> Iterable[ServedModel]:
        listed = await self._get(target, f"{target.base_url}/models", _List)
        if listed is None:
            raise ProviderRefused(f"{target.place} has no list of models: check its base_url")
        if listed.data and all(served.loaded for served in listed.data):
            return _chat_models(listed.data)
        root = target.base_url.removesuffix("/v1")
        if detailed := await self._get(target, f"{root}/api/v0/models", _List):
            return _chat_models(detailed.data)
        if installed := await self._get(target, f"{root}/api/tags", _OllamaList):
            return await self._ollama_models(target, root, installed.models)
        props = await self._get(target, f"{root}/props", _Props)
        window = props.default_generation_settings.n_ctx if props else None
        return [
            ServedModel(name=served.id, window=window or served.window)
            for served in listed.data
            if _is_name(served.id)
        ]

    async def _ollama_models(
        self, target: CallTarget, root: str, installed: list[_OllamaModel]
    ) -> Iterable[ServedModel]:
        """Ollama's models; only a loaded one shows the window that the server's settings give it."""
        loaded = await self._get(target, f"{root}/api/ps", _OllamaList)
        for model in loaded.models if loaded else ():
            if model.context_length:
                self._loaded[target.base_url, model.name] = model.context_length
        limit = anyio.CapacityLimiter(MAX_PARALLEL)
        shown: dict[str, _OllamaDetails] = {}

        async def show(model: _OllamaModel) -> None:
            async with limit:
                shown[model.name] = await self._show(target, root, model)

        async with anyio.create_task_group() as group:
            for model in installed[:MAX_MODELS]:
                group.start_soon(show, model)
        return [
            ServedModel(
                name=model.name,
                window=self._loaded.get((target.base_url, model.name)) or shown[model.name].window,
            )
            for model in installed[:MAX_MODELS]
            if shown[model.name].talks and _is_name(model.name)
        ]

    async def _show(self, target: CallTarget, root: str, model: _OllamaModel) -> _OllamaDetails:
        key = (target.base_url, model.name, model.digest)
        if key not in self._shown:
            body = msgspec.json.encode({"model": model.name})
            self._shown[key] = (
                await self._get(target, f"{root}/api/show", _OllamaDetails, body)
                or _OllamaDetails()
            )
        return self._shown[key]

    async def _get(
        self, target: CallTarget, url: str, shape: type[T], body: bytes = b""
    ) -> T | None:
        """The answer in that shape, or None. Raises a `WorkerError` if the server does not answer."""
        call = ModelCall(
            backend=target.provider.backend,
            dialect="openai",
            method="POST" if body else "GET",
            url=url,
            headers=((b"content-type", b"application/json"),) if body else (),
            body=body,
            key=target.key,
            hurried=True,
            secret_headers=target.headers,
            server=target.base_url,
        )
        async with self._connections.send(call) as answer:
            if answer.status >= FIRST_ERROR_STATUS:
                return None
            with self._connections.memory.share() as share:
                body = await read_whole(answer, target.place, share, most=MAX_LIST_BYTES)
        try:
            return msgspec.json.decode(body, type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


async def survey_servers(
    settings: Settings, environ: Mapping[str, str], usual: Mapping[str, int]
) -> tuple[Mapping[str, ModelListing], Mapping[str, ModelListing]]:
    """Listings of the configured servers, and of others on a `usual` port of this machine.

    Only for a user's explicit check: ports that no settings name are tried nowhere else.
    """
    known: dict[str, ModelListing] = {}
    found: dict[str, ModelListing] = {}
    taken = {
        urlsplit(backend.base_url).port
        for backend in settings.backends.values()
        if backend.base_url and is_this_machine(backend.base_url)
    }
    others = {LOCAL_SERVERS[name]: port for name, port in usual.items() if port not in taken}
    async with Connections.open() as connections, anyio.create_task_group() as group:
        lists = ModelLists(
            connections, settings=lambda: settings, environ=lambda: environ, on_update=known.update
        )

        async def ask_port(server: LocalServer, port: int) -> None:
            target = CallTarget(
                provider=Provider(name=server.id, backend=server.id, model=""),
                dialect="openai",
                base_url=f"http://127.0.0.1:{port}/v1",
                key=Secret(""),
                is_local=True,
            )
            listing = await lists.ask(target)
            if listing.models:
                found[server.id] = listing

        group.start_soon(lists.refresh)
        for server, port in others.items():
            group.start_soon(ask_port, server, port)
    return known, found


def local_targets(settings: Settings, environ: Mapping[str, str]) -> Iterable[CallTarget]:
    """The configured servers that can be asked, once each."""
    for backend in settings.backends.values():
        if not backend.local:
            continue
        try:
            provider = Provider(name=backend.id, backend=backend.id, model="")
            yield target_for(provider, settings.backends, environ)
        except ProviderRefused:
            continue  # its key is missing, which is reported elsewhere


def _chat_models(models: Iterable[_Served]) -> Iterable[ServedModel]:
    """Without embedding models, which LM Studio lists too."""
    return [
        ServedModel(name=model.id, window=model.window)
        for model in models
        if model.type != "embeddings" and _is_name(model.id)
    ]


def _is_name(text: str) -> bool:
    """Whether a name that a server sent is safe to show and to pass to programs."""
    return text.isprintable() and not text.startswith("-") and 0 < len(text) <= MAX_NAME


def _number(raw: Raw) -> int | None:
    try:
        return msgspec.json.decode(raw, type=int)
    except msgspec.DecodeError:
        return None
