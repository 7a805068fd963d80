"""How is OpenCode evaluated? Each attempt is a session of its own, on a server that all share."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
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
from goent.drivers.opencode.client import ServerUnreachable, Words
from goent.drivers.opencode.launching import check_trusted, project_instructions
from goent.evals.ports import Attempt, Target, TargetError, Witness
from goent.evals.suites import TargetSpec
from goent.evals.targets.opencode.attempting import Attempting, Plan
from goent.evals.targets.opencode.launches import Choice, Terms, choose_model, in_profile
from goent.evals.targets.opencode.logs import FOLDER, StreamLog, is_wanted
from goent.evals.targets.opencode.prompts import asked
from goent.evals.targets.opencode.rules import session_rules
from goent.evals.targets.opencode.servers import Servers, Use
from goent.evals.targets.opencode.settings import OpenCodeSettings, read_settings
from goent.evals.targets.opencode.threads import Thread, forget
from goent.evals.targets.settings import secrets_of
from goent.evals.traces import Trace, WorkedBy

_Ask = Callable[[Attempt, Witness, "_Talk"], Awaitable[Trace]]
_NO_KEY = ("unknown_model", "auth_refused")
_KINDS: dict[type[GoentError], str] = {
    ConfigError: "config_error",
    OpenCodeMissing: "opencode_missing",
    BudgetExceeded: "budget_exceeded",
}


class OpenCodeTarget:
    """The port `Target`, by `opencode serve`. Nothing is started before the first attempt."""

    def __init__(self, spec: TargetSpec, servers: Servers) -> None:
        """Raises `ConfigError` if the settings are no such target's."""
        self._told = read_settings(spec)
        self._own_secrets = secrets_of([spec])
        self._rules = session_rules(self._told)
        self._servers = servers

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        async with AsyncExitStack() as stack:
            return await self._ask(attempt, witness, _Talk(stack))

    @asynccontextmanager
    async def conversing(self, attempt: Attempt) -> AsyncGenerator[Target]:
        """All turns are prompts of one session, which begins with the first."""
        thread = Thread(log=StreamLog(self._secrets))
        async with AsyncExitStack() as stack:
            talk = _Talk(stack, thread)
            try:
                yield _Talking(attempt, talk, self._ask)
            finally:
                thread.log.end()
                if talk.use and thread.session:
                    await forget(talk.use.server.client, thread.session)

    async def _ask(self, attempt: Attempt, witness: Witness, talk: "_Talk") -> Trace:
        limit = min(self._told.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
        until = anyio.current_time() + limit
        accounts = self._servers.accounts
        try:
            plan = talk.following(self._plan(attempt, limit))
            talk.use = talk.use or await self._use(talk.stack, plan, until)
            attempting = Attempting(plan, talk.use, accounts, witness, self._secrets, talk.thread)
            trace, error = await attempting.run(until)
        except TargetError:
            raise
        except GoentError as refusal:
            raise _failure(refusal) from refusal
        except OSError as trouble:  # a disk that refuses the server its folders
            raise TargetError("environment", f"OpenCode cannot be started: {trouble}") from trouble
        if error:
            failure = _failure(error)
            raise self._advised(failure, plan.choice) from error
        return trace

    def _advised(self, failure: TargetError, choice: Choice) -> TargetError:
        """OpenCode says the same of a model that nobody has and of one that it has no key for."""
        if failure.kind not in _NO_KEY or choice.held or not self._told.is_ours_alone:
            return failure
        words = (
            f"{failure}; go-ent holds no key for {choice.provider.backend!r}, and logins of your own OpenCode "
            "do not count in a hermetic profile: set `profile: user` in the target, or give go-ent a key"
        )
        return TargetError(failure.kind, words, retryable=failure.retryable)

    async def _use(self, stack: AsyncExitStack, plan: Plan, until: float) -> Use:
        terms = Terms(told=self._told, backend=plan.choice.provider.backend)
        with anyio.CancelScope(deadline=until):
            return await stack.enter_async_context(self._servers.use(terms, plan.directory))
        raise TurnTimeout(f"OpenCode's server was not ready within {plan.limit_s:g} s")

    def _plan(self, attempt: Attempt, limit: float) -> Plan:
        told, around = self._told, self._servers.around
        directory = (attempt.cwd / told.cwd).resolve()
        if not directory.is_dir() or not directory.is_relative_to(attempt.cwd.resolve()):
            where = f"{told.cwd or '.'!r} is no directory inside {str(attempt.cwd)!r}"
            raise TargetError("no_directory", where)
        if told.base_url is None:
            check_trusted(in_profile(told, around), directory)
        said = asked(attempt.case, told.system_prompt)
        choice = choose_model(told, around)
        # What the directory tells every agent, where OpenCode is kept from reading it by itself.
        alone = replace(in_profile(told, around).settings(), project=directory)
        words = Words(
            text=said.text,
            before=said.before,
            files=tuple(project_instructions(directory, alone)) if told.base_url is None else (),
            model=choice.model,
            system=said.system,
            agent=told.agent,
            variant=told.variant,
        )
        return Plan(
            attempt=attempt,
            directory=directory,
            words=words,
            links=said.links,
            rules=self._rules,
            policy=told.permission_policy,
            choice=choice,
            by=_worked_by(told, choice),
            payer=f"eval.{attempt.case.id}.{secrets.token_hex(4)}",
            limit_s=limit,
            log_dir=self._log_dir(),
        )

    def _secrets(self) -> Collection[str]:
        """What no log may have: go-ent's keys, and what the target's own settings hold of that kind."""
        return (*self._servers.secrets(), *self._own_secrets)

    def _log_dir(self) -> Path | None:
        around = self._servers.around
        if not is_wanted(self._told.stream_logs, around.environ()):
            return None
        return around.settings().project / (self._told.stream_log_dir or FOLDER)


@dataclass(slots=True)
class _Talk:
    """The server that an attempt is on; in a conversation, what its prompts have in common."""

    stack: AsyncExitStack
    thread: Thread | None = None
    use: Use | None = None
    links: tuple[Path, ...] = ()

    def following(self, plan: Plan) -> Plan:
        """What was linked once may be read on; what was attached once is in the session."""
        self.links = tuple(dict.fromkeys((*self.links, *plan.links)))
        words = replace(plan.words, files=()) if self.use else plan.words
        return replace(plan, words=words, links=self.links)


class _Talking:
    """The port `Target`, for the turns of one attempt. What the system says is said with each prompt."""

    def __init__(self, attempt: Attempt, talk: _Talk, ask: _Ask) -> None:
        self._attempt = attempt
        self._systems = tuple(said for said in attempt.case.input if said.role == "system")
        self._talk = talk
        self._ask = ask

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        told = attempt.case
        said = (*self._systems, *(one for one in told.input if one not in self._systems))
        case = replace(told, id=self._attempt.case.id, input=said)
        return await self._ask(replace(attempt, case=case), witness, self._talk)


def _worked_by(told: OpenCodeSettings, choice: Choice) -> WorkedBy | None:
    """By the name that the router knows; what a server of somebody else's asks is not ours to name."""
    if told.base_url is not None or not choice.model:
        return None
    one = choice.provider
    return WorkedBy(provider=one.name, backend=one.backend, model=one.model, method="serve")


def _failure(error: GoentError) -> TargetError:
    """The same, as the attempt's. Another try may help where the server or the provider was at fault."""
    kind, again = _KINDS.get(type(error), "environment"), False
    if isinstance(error, WorkerError):
        kind = error.kind
        again = error.retryable and not isinstance(error, TurnTimeout)
    if isinstance(error, ServerUnreachable):
        kind, again = "server_unreachable", True
    return TargetError(kind, str(error), retryable=again)
