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
    """The last thing said is `text`, and `before` is what came ahead of it; `links` are the files named."""

    text: str
    system: str = ""
    before: tuple[str, ...] = ()
    links: tuple[Path, ...] = ()


def opencode_prompt(case: EvalCase, system_prompt: str) -> OpenCodePrompt:
    """The target's own system prompt comes first. A file is named, never pasted."""
    systems = [said.text for said in case.input if said.role == "system"]
    spoken = [said for said in case.input if said.role != "system"]
    texts = [_with_links(said.text, said.files) for said in spoken]
    last = texts.pop() if texts else ""
    before = [f"[{said.role}]\n{text}" for said, text in zip(spoken, texts, strict=False)]
    if case.guidelines:
        before.insert(0, _with_links(READ_FIRST_PROMPT, case.guidelines))
    files = (path for said in case.input for path in said.files)
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
    """The port `Target`, by `opencode serve`. Nothing is started before the first attempt."""

    def __init__(self, spec: TargetSpec, servers: EvalServers) -> None:
        """Raises `ConfigError` if the settings are no such target's."""
        self._settings = read_opencode_settings(spec)
        self._own_secrets = target_secrets([spec])
        self._rules = session_rules(self._settings)
        self._servers = servers

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        async with AsyncExitStack() as stack:
            return await self._ask(attempt, witness, _AttemptContext(stack))

    @asynccontextmanager
    async def conversation(self, attempt: CaseAttempt) -> AsyncGenerator[EvalTarget]:
        """All turns are prompts of one session, which begins with the first."""
        thread = SessionThread(log=StreamLog(self._secrets))
        async with AsyncExitStack() as stack:
            talk = _AttemptContext(stack, thread)
            try:
                yield _OpenCodeConversation(attempt, talk, self._ask)
            finally:
                thread.log.end()
                if talk.use and thread.session:
                    await delete_session(talk.use.server.client, thread.session)

    async def _ask(
        self, attempt: CaseAttempt, witness: AttemptObserver, talk: "_AttemptContext"
    ) -> Trace:
        limit = min(self._settings.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
        until = anyio.current_time() + limit
        accounts = self._servers.accounts
        try:
            plan = talk.continue_plan(self._plan(attempt, limit))
            talk.use = talk.use or await self._use(talk.stack, plan, until)
            attempting = OpenCodeAttempt(
                plan, talk.use, accounts, witness, self._secrets, talk.thread
            )
            trace, error = await attempting.run(until)
        except TargetError:
            raise
        except GoentError as refusal:
            raise _target_error(refusal) from refusal
        except OSError as trouble:  # a disk that refuses the server its folders
            raise TargetError("environment", f"OpenCode cannot be started: {trouble}") from trouble
        if error:
            failure = _target_error(error)
            raise self._with_advice(failure, plan.choice) from error
        return trace

    def _with_advice(self, failure: TargetError, choice: TargetModel) -> TargetError:
        """OpenCode says the same of a model that nobody has and of one that it has no key for."""
        if failure.kind not in _NO_KEY_KINDS or choice.is_metered or not self._settings.is_hermetic:
            return failure
        message = (
            f"{failure}; go-ent holds no key for {choice.provider.backend!r}, and logins of your own OpenCode "
            "do not count in a hermetic profile: set `profile: user` in the target, or give go-ent a key"
        )
        return TargetError(failure.kind, message, retryable=failure.retryable)

    async def _use(self, stack: AsyncExitStack, plan: AttemptPlan, until: float) -> ServerUse:
        terms = ServerSettings(settings=self._settings, backend=plan.choice.provider.backend)
        with anyio.CancelScope(deadline=until):
            return await stack.enter_async_context(self._servers.use(terms, plan.directory))
        raise TurnTimeout(f"OpenCode's server was not ready within {plan.limit_s:g} s")

    def _plan(self, attempt: CaseAttempt, limit: float) -> AttemptPlan:
        told, context = self._settings, self._servers.context
        directory = (attempt.cwd / told.cwd).resolve()
        if not directory.is_dir() or not directory.is_relative_to(attempt.cwd.resolve()):
            where = f"{told.cwd or '.'!r} is no directory inside {str(attempt.cwd)!r}"
            raise TargetError("no_directory", where)
        if told.base_url is None:
            check_trusted(with_profile(told, context), directory)
        said = opencode_prompt(attempt.case, told.system_prompt)
        choice = choose_model(told, context)
        # What the directory tells every agent, where OpenCode is kept from reading it by itself.
        alone = replace(with_profile(told, context).settings(), project=directory)
        prompt = TurnInput(
            text=said.text,
            before=said.before,
            files=tuple(project_instructions(directory, alone)) if told.base_url is None else (),
            model=choice.model,
            system=said.system,
            agent=told.agent,
            variant=told.variant,
        )
        return AttemptPlan(
            attempt=attempt,
            directory=directory,
            prompt=prompt,
            links=said.links,
            rules=self._rules,
            policy=told.permission_policy,
            choice=choice,
            by=_trace_worker(told, choice),
            payer=f"eval.{attempt.case.id}.{secrets.token_hex(4)}",
            limit_s=limit,
            log_dir=self._log_dir(),
        )

    def _secrets(self) -> Collection[str]:
        """What no log may have: go-ent's keys, and what the target's own settings hold of that kind."""
        return (*self._servers.secrets(), *self._own_secrets)

    def _log_dir(self) -> Path | None:
        context = self._servers.context
        if not is_log_wanted(self._settings.stream_logs, context.environ()):
            return None
        return context.settings().project / (self._settings.stream_log_dir or LOG_FOLDER)


@dataclass(slots=True)
class _AttemptContext:
    """The server that an attempt is on; in a conversation, what its prompts have in common."""

    stack: AsyncExitStack
    thread: SessionThread | None = None
    use: ServerUse | None = None
    links: tuple[Path, ...] = ()

    def continue_plan(self, plan: AttemptPlan) -> AttemptPlan:
        """What was linked once may be read on; what was attached once is in the session."""
        self.links = tuple(dict.fromkeys((*self.links, *plan.links)))
        prompt = replace(plan.prompt, files=()) if self.use else plan.prompt
        return replace(plan, prompt=prompt, links=self.links)


class _OpenCodeConversation:
    """The port `Target`, for the turns of one attempt. What the system says is said with each prompt."""

    def __init__(self, attempt: CaseAttempt, talk: _AttemptContext, ask: _AskCallback) -> None:
        self._attempt = attempt
        self._systems = tuple(said for said in attempt.case.input if said.role == "system")
        self._talk = talk
        self._ask = ask

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        told = attempt.case
        said = (*self._systems, *(one for one in told.input if one not in self._systems))
        case = replace(told, id=self._attempt.case.id, input=said)
        return await self._ask(replace(attempt, case=case), witness, self._talk)


def _trace_worker(told: OpenCodeTargetSettings, choice: TargetModel) -> TraceWorker | None:
    """By the name that the router knows; what a server of somebody else's asks is not ours to name."""
    if told.base_url is not None or not choice.model:
        return None
    one = choice.provider
    return TraceWorker(provider=one.name, backend=one.backend, model=one.model, method="serve")


def _target_error(error: GoentError) -> TargetError:
    """The same, as the attempt's. Another try may help where the server or the provider was at fault."""
    kind, again = _ERROR_KINDS.get(type(error), "environment"), False
    if isinstance(error, WorkerError):
        kind = error.kind
        again = error.retryable and not isinstance(error, TurnTimeout)
    if isinstance(error, ServerUnreachable):
        kind, again = "server_unreachable", True
    return TargetError(kind, str(error), retryable=again)
