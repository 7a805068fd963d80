"""Evaluates OpenCode: each attempt is a session of its own on a shared server."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.domain.errors import (
    BudgetExceeded,
    ConfigError,
    GoentError,
    OpenCodeMissing,
    TurnTimeout,
    WorkerError,
)
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, EvalTarget, TargetError
from goent.evals.suites import EvalCase, TargetSpec
from goent.evals.targets.opencode_attempt import (
    AttemptPlan,
    OpenCodeAttempt,
    SessionThread,
    delete_session,
)
from goent.evals.targets.opencode_target_permissions import session_rules
from goent.evals.targets.opencode_target_servers import (
    EvalServers,
    ServerSettings,
    ServerUse,
    TargetModel,
    choose_model,
    with_profile,
)
from goent.evals.targets.opencode_target_settings import (
    OpenCodeTargetSettings,
    read_opencode_settings,
)
from goent.evals.targets.opencode_transcript import LOG_FOLDER, StreamLog, is_log_wanted
from goent.evals.targets.target_settings import target_secrets
from goent.evals.traces import Trace, TraceWorker
from goent.opencode.process_launch import check_trusted, project_instructions
from goent.opencode.server_api import ServerUnreachable, TurnInput

READ_FIRST_PROMPT = "Read these files before you begin; they say how the work is to be done:"


class OpenCodePrompt(Value, frozen=True, kw_only=True):
    """The last message is `text`, and `before` the ones ahead of it; `links` are the files they name."""

    text: str
    system: str = ""
    before: tuple[str, ...] = ()
    links: tuple[Path, ...] = ()


def opencode_prompt(case: EvalCase, system_prompt: str) -> OpenCodePrompt:
    """The case as a prompt, after the target's own system prompt. Files are named, not pasted."""
    systems = [message.text for message in case.input if message.role == "system"]
    others = [message for message in case.input if message.role != "system"]
    texts = [_with_links(message.text, message.files) for message in others]
    last = texts.pop() if texts else ""
    before = [f"[{message.role}]\n{text}" for message, text in zip(others, texts, strict=False)]
    if case.guidelines:
        before.insert(0, _with_links(READ_FIRST_PROMPT, case.guidelines))
    files = (path for message in case.input for path in message.files)
    return OpenCodePrompt(
        text=last,
        system="\n\n".join(filter(None, (system_prompt, *systems))),
        before=tuple(f"{text}\n\n" for text in before),
        links=tuple(dict.fromkeys((*case.guidelines, *files))),
    )


def _with_links(text: str, files: Iterable[Path]) -> str:
    return "\n".join((text, *(f"[{path.name}]({path.as_uri()})" for path in files)))


_AskCallback = Callable[[CaseAttempt, AttemptObserver, "_AttemptContext"], Awaitable[Trace]]
_NO_KEY_KINDS = ("unknown_model", "auth_refused")
_ERROR_KINDS: dict[type[GoentError], str] = {
    ConfigError: "config_error",
    OpenCodeMissing: "opencode_missing",
    BudgetExceeded: "budget_exceeded",
}


class OpenCodeTarget:
    """The port `EvalTarget`, by `opencode serve`. Nothing is started before the first attempt."""

    def __init__(self, spec: TargetSpec, servers: EvalServers) -> None:
        """Raises `ConfigError` if the settings are wrong."""
        self._settings = read_opencode_settings(spec)
        self._own_secrets = target_secrets([spec])
        self._rules = session_rules(self._settings)
        self._servers = servers

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        async with AsyncExitStack() as stack:
            return await self._ask(attempt, witness, _AttemptContext(stack))

    @asynccontextmanager
    async def conversation(self, attempt: CaseAttempt) -> AsyncGenerator[EvalTarget]:
        """All turns are prompts of one session, created for the first."""
        thread = SessionThread(log=StreamLog(self._secrets))
        async with AsyncExitStack() as stack:
            shared = _AttemptContext(stack, thread)
            try:
                yield _OpenCodeConversation(attempt, shared, self._ask)
            finally:
                thread.log.end()
                if shared.use and thread.session:
                    await delete_session(shared.use.server.client, thread.session)

    async def _ask(
        self, attempt: CaseAttempt, witness: AttemptObserver, shared: "_AttemptContext"
    ) -> Trace:
        limit = min(self._settings.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
        until = anyio.current_time() + limit
        accounts = self._servers.accounts
        try:
            plan = shared.continue_plan(self._plan(attempt, limit))
            shared.use = shared.use or await self._use(shared.stack, plan, until)
            attempting = OpenCodeAttempt(
                plan, shared.use, accounts, witness, self._secrets, shared.thread
            )
            trace, error = await attempting.run(until)
        except TargetError:
            raise
        except GoentError as refusal:
            raise _target_error(refusal) from refusal
        except OSError as trouble:  # the server's folders cannot be created
            raise TargetError("environment", f"OpenCode cannot be started: {trouble}") from trouble
        if error:
            failure = _target_error(error)
            raise self._with_advice(failure, plan.choice) from error
        return trace

    def _with_advice(self, failure: TargetError, choice: TargetModel) -> TargetError:
        """Explain a missing key, which OpenCode reports like an unknown model."""
        if failure.kind not in _NO_KEY_KINDS or choice.is_metered or not self._settings.is_hermetic:
            return failure
        message = (
            f"{failure}; go-ent has no key for {choice.provider.backend!r}, and logins of your own OpenCode "
            "do not apply in a hermetic profile: set `profile: user` in the target, or give go-ent a key"
        )
        return TargetError(failure.kind, message, retryable=failure.retryable)

    async def _use(self, stack: AsyncExitStack, plan: AttemptPlan, until: float) -> ServerUse:
        terms = ServerSettings(settings=self._settings, backend=plan.choice.provider.backend)
        with anyio.CancelScope(deadline=until):
            return await stack.enter_async_context(self._servers.use(terms, plan.directory))
        raise TurnTimeout(f"OpenCode's server was not ready within {plan.limit_s:g} s")

    def _plan(self, attempt: CaseAttempt, limit: float) -> AttemptPlan:
        settings, context = self._settings, self._servers.context
        directory = (attempt.cwd / settings.cwd).resolve()
        if not directory.is_dir() or not directory.is_relative_to(attempt.cwd.resolve()):
            where = f"{settings.cwd or '.'!r} is not a directory inside {str(attempt.cwd)!r}"
            raise TargetError("no_directory", where)
        if settings.base_url is None:
            check_trusted(with_profile(settings, context), directory)
        prompt = opencode_prompt(attempt.case, settings.system_prompt)
        choice = choose_model(settings, context)
        # The directory's own instructions, unless OpenCode reads them by itself.
        alone = replace(with_profile(settings, context).settings(), project=directory)
        turn_input = TurnInput(
            text=prompt.text,
            before=prompt.before,
            files=tuple(project_instructions(directory, alone))
            if settings.base_url is None
            else (),
            model=choice.model,
            system=prompt.system,
            agent=settings.agent,
            variant=settings.variant,
        )
        return AttemptPlan(
            attempt=attempt,
            directory=directory,
            prompt=turn_input,
            links=prompt.links,
            rules=self._rules,
            policy=settings.permission_policy,
            choice=choice,
            by=_trace_worker(settings, choice),
            payer=f"eval.{attempt.case.id}.{secrets.token_hex(4)}",
            limit_s=limit,
            log_dir=self._log_dir(),
        )

    def _secrets(self) -> Collection[str]:
        """What no log may contain: go-ent's keys, and secrets in the target's own settings."""
        return (*self._servers.secrets(), *self._own_secrets)

    def _log_dir(self) -> Path | None:
        context = self._servers.context
        if not is_log_wanted(self._settings.stream_logs, context.environ()):
            return None
        return context.settings().project / (self._settings.stream_log_dir or LOG_FOLDER)


@dataclass(slots=True)
class _AttemptContext:
    """The server of an attempt; in a conversation, everything that its prompts share."""

    stack: AsyncExitStack
    thread: SessionThread | None = None
    use: ServerUse | None = None
    links: tuple[Path, ...] = ()

    def continue_plan(self, plan: AttemptPlan) -> AttemptPlan:
        """Earlier links may still be read; instructions are attached only once."""
        self.links = tuple(dict.fromkeys((*self.links, *plan.links)))
        prompt = replace(plan.prompt, files=()) if self.use else plan.prompt
        return replace(plan, prompt=prompt, links=self.links)


class _OpenCodeConversation:
    """The port `EvalTarget`, for the turns of one attempt. System messages go with each prompt."""

    def __init__(self, attempt: CaseAttempt, shared: _AttemptContext, ask: _AskCallback) -> None:
        self._attempt = attempt
        self._systems = tuple(each for each in attempt.case.input if each.role == "system")
        self._shared = shared
        self._ask = ask

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        case = attempt.case
        messages = (*self._systems, *(each for each in case.input if each not in self._systems))
        case = replace(case, id=self._attempt.case.id, input=messages)
        return await self._ask(replace(attempt, case=case), witness, self._shared)


def _trace_worker(settings: OpenCodeTargetSettings, choice: TargetModel) -> TraceWorker | None:
    """The worker by its name for the router; unknown on somebody else's server."""
    if settings.base_url is not None or not choice.model:
        return None
    provider = choice.provider
    return TraceWorker(
        provider=provider.name,
        backend=provider.backend,
        model=provider.model,
        method="serve",
    )


def _target_error(error: GoentError) -> TargetError:
    """The error as the target's; retryable if the server or the provider was at fault."""
    kind, retryable = _ERROR_KINDS.get(type(error), "environment"), False
    if isinstance(error, WorkerError):
        kind = error.kind
        retryable = error.retryable and not isinstance(error, TurnTimeout)
    if isinstance(error, ServerUnreachable):
        kind, retryable = "server_unreachable", True
    return TargetError(kind, str(error), retryable=retryable)
