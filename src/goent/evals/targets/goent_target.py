"""Evaluates go-ent's own workers: one per attempt, or several that race in copies of its folder."""

import shutil
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec import Meta
from msgspec.structs import replace

from goent.domain.errors import TurnTimeout
from goent.domain.replies import PromptReply
from goent.domain.requests import PromptRequest, SpawnRequest
from goent.domain.types import ONE_TURN_METHODS, Method, Preset, Value
from goent.domain.verification import blank_commands
from goent.evals.eval_ports import (
    AttemptObserver,
    CaseAttempt,
    DaemonGone,
    DaemonRefused,
    EvalDaemon,
    EvalTarget,
    ForwardingObserver,
    OpenDaemon,
    TargetError,
)
from goent.evals.suites import AskPolicy, EvalCase, TargetSpec, prompt_text
from goent.evals.targets.goent_attempt import GoentAttempt, daemon_failure, suite_usage
from goent.evals.targets.target_kind import TargetKind
from goent.evals.targets.target_settings import (
    read_target_settings,
    setting_names,
    settings_mistakes,
)
from goent.evals.traces import TokenUsage, Trace, TracedMessage, sum_if_known, sum_usage

PositiveFloat = Annotated[float, Meta(gt=0)]


class RaceCandidate(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The worker's pins, as in `worker_spawn`; what is left out, the router chooses."""

    subprovider: str | None = None
    model: str | None = None
    method: Method | None = None
    permissions: Preset | None = None
    budget_usd: PositiveFloat | None = None
    allow_fallback: bool | None = None
    allowed_tools: tuple[str, ...] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None


class GoentTargetSettings(RaceCandidate, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pins of the only worker, or the defaults for all candidates of a `race`.

    A candidate is a table of pins, or the name of a provider. (`provider` is `goent`, hence `subprovider`.)
    """

    permission_policy: AskPolicy = "reject"
    timeout_seconds: PositiveFloat | None = None
    verify: tuple[str, ...] = ()
    race: tuple[RaceCandidate | str, ...] = ()

    @property
    def candidates(self) -> tuple[RaceCandidate, ...]:
        usual = msgspec.convert(self, RaceCandidate, from_attributes=True)
        return tuple(_candidate(usual, racer) for racer in self.race) or (usual,)


def goent_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    wrong = list(settings_mistakes(settings, GoentTargetSettings))
    yield from wrong
    race = settings.get("race")
    if isinstance(race, list) and len(race) == 1:  # pyright: ignore[reportUnknownArgumentType] (from a file)
        yield "race", "has one candidate; name at least two, or set `subprovider` instead"
    if wrong:
        return
    valid = msgspec.convert(dict(settings), GoentTargetSettings, strict=False)
    for index, reason in blank_commands(valid.verify):
        yield f"verify[{index}]", reason
    for number, candidate in enumerate(valid.candidates):
        if candidate.temperature is not None and candidate.method != "api":
            path, which = (f"race[{number}]", "its temperature ") if race else ("temperature", "")
            yield path, f"{which}needs a model that is called directly; add `method: api`"


def _candidate(usual: RaceCandidate, racer: RaceCandidate | str) -> RaceCandidate:
    own = RaceCandidate(subprovider=racer) if isinstance(racer, str) else racer
    if own.subprovider:  # another provider has other models
        usual = replace(usual, model=None)
    given = {
        name: value for name, value in msgspec.structs.asdict(own).items() if value is not None
    }
    return replace(usual, **given)


def spawn_request(
    attempt: CaseAttempt,
    candidate: RaceCandidate,
    settings: GoentTargetSettings,
    *,
    cwd: str,
    limit_s: float,
) -> SpawnRequest:
    """The directory is the attempt's own, so edits in it are allowed."""
    return SpawnRequest(
        task=prompt_text(attempt.case),
        provider=candidate.subprovider,
        model=candidate.model,
        method=candidate.method,
        cwd=cwd,
        files=_case_files(attempt.case),
        isolation="shared",
        permissions=candidate.permissions or "edit",
        budget_usd=candidate.budget_usd,
        timeout_s=limit_s,
        verify=settings.verify,
        allow_fallback=candidate.allow_fallback,
        allowed_tools=candidate.allowed_tools,
        temperature=candidate.temperature,
        wait_s=0.0,
    )


def prompt_request(attempt: CaseAttempt, worker: str) -> PromptRequest:
    return PromptRequest(
        worker_id=worker, prompt=prompt_text(attempt.case), files=_case_files(attempt.case)
    )


def _case_files(case: EvalCase) -> tuple[str, ...]:
    files = (*case.guidelines, *(path for said in case.input for path in said.files))
    return tuple(dict.fromkeys(map(str, files)))


class RacerObserver(ForwardingObserver):
    """Observes one racer: reports the messages of the racer with most of them, and the usage of all."""

    def __init__(self, witness: AttemptObserver, all_: "list[RacerObserver]") -> None:
        super().__init__(witness)
        self._racers = all_
        self.messages: dict[int, TracedMessage] = {}
        self.spending: RaceSpending | None = None
        all_.append(self)

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        ahead = self._leader()
        self.messages[number] = message
        if self._leader() is not self:
            return
        fresh = {number: message} if ahead is self else self.messages
        for each, whole in fresh.items():
            super().message(each, whole)

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self.spending = RaceSpending(usage=usage, cost_usd=cost_usd)
        in_all = total_spending([one.spending for one in self._racers if one.spending])
        super().usage_changed(in_all.usage, in_all.cost_usd)

    def _leader(self) -> "RacerObserver":
        return max(self._racers, key=lambda one: len(one.messages))


class RaceSpending(Value, frozen=True, kw_only=True):
    """`cost_usd` is None if a part of it is unknown."""

    usage: TokenUsage | None = None
    cost_usd: float | None = None


def total_spending(spent: Sequence[RaceSpending]) -> RaceSpending:
    return RaceSpending(
        usage=sum_usage(one.usage for one in spent),
        cost_usd=sum_if_known([one.cost_usd for one in spent]) if spent else None,
    )


async def run_race(
    racers: Sequence[GoentAttempt], requests: Sequence[SpawnRequest]
) -> GoentAttempt:
    """Returns the first to succeed, and cancels the others; if none does, one that can be graded.

    Otherwise raises a racer's `TargetError`: the first that is retryable, if there is one.
    """
    succeeded: list[GoentAttempt] = []

    def over(racer: GoentAttempt) -> None:
        if racer.succeeded and not succeeded:
            succeeded.append(racer)
            for other in racers:
                if other is not racer:
                    other.cancel()

    async def run(racer: GoentAttempt, request: SpawnRequest) -> None:
        try:
            await racer.run(request, over=partial(over, racer))
        except TargetError as error:
            racer.error = error
        except (DaemonRefused, DaemonGone) as trouble:
            racer.error = daemon_failure(trouble)

    async with anyio.create_task_group() as group:
        for racer, request in zip(racers, requests, strict=True):
            group.start_soon(run, racer, request)
    gradable = (racer for racer in racers if racer.failure is None)
    winner = next(chain(succeeded, gradable), None)
    if winner is None:
        failures = [racer.failure for racer in racers if racer.failure]
        raise next((failure for failure in failures if failure.retryable), failures[0])
    return winner


def race_spending(racers: Sequence[GoentAttempt]) -> RaceSpending:
    """The total; unknown if a racer was spawned and reported no call."""
    begun = [racer.transcript for racer in racers if racer.transcript.spawned]
    return total_spending(
        [RaceSpending(usage=suite_usage(one.usage), cost_usd=one.cost) for one in begun]
    )


def winner_trace(winner: GoentAttempt, racers: Sequence[GoentAttempt]) -> Trace:
    """The winner's trace, with the usage of all racers."""
    spent = race_spending(racers)
    calls = [racer.transcript.llm_calls or 0 for racer in racers]
    return replace(
        winner.transcript.trace(),
        usage=spent.usage,
        cost_usd=spent.cost_usd,
        llm_calls=sum(calls) if spent.usage else None,
    )


@asynccontextmanager
async def folder_copies(
    of: Path, count: int, scratch: Path | None = None
) -> AsyncGenerator[tuple[Path, ...]]:
    """Temporary copies of a directory, in `scratch`."""
    folder = TemporaryDirectory(prefix="goent-race-", dir=scratch, ignore_cleanup_errors=True)
    try:
        made = tuple(Path(folder.name) / str(number) for number in range(1, count + 1))
        for copy in made:
            await run_sync(partial(shutil.copytree, of, copy, symlinks=True))
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(folder.cleanup)  # whole workspaces take a while


async def replace_contents(copy: Path, home: Path) -> None:
    """Moves the copy's entries into the directory, which stays: a process may have it as its cwd."""
    await run_sync(_replace_contents, copy, home)


def _replace_contents(copy: Path, home: Path) -> None:
    for entry in home.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for entry in copy.iterdir():
        shutil.move(entry, home / entry.name)


def with_moved_paths(trace: Trace, copy: Path, home: Path) -> Trace:
    """The trace with paths in the copy replaced by those in the directory."""
    written = msgspec.json.encode(trace).replace(_json_path(copy), _json_path(home))
    return msgspec.json.decode(written, type=Trace)


def _json_path(path: Path) -> bytes:
    return msgspec.json.encode(str(path))[1:-1]


WORKER_MARGIN_S = 3.0  # a worker ends its turn by itself before it is cancelled,
LONG_LIMIT_S = 10.0  # if the limit is at least this long


class GoentTarget:
    """Evaluates a worker per attempt, or several that race; each is closed in the end."""

    def __init__(self, spec: TargetSpec, meet: OpenDaemon, *, scratch: Path | None = None) -> None:
        """Races take place in a folder in `scratch`."""
        self._settings = read_target_settings(spec, GoentTargetSettings)
        self._open_daemon = meet
        self._scratch = scratch

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        with _time_limit(self._settings, attempt) as limit:
            async with self._open_daemon() as daemon:
                if len(self._settings.candidates) > 1:
                    return await self._run_race(daemon, attempt, witness, limit)
                return await self._run_one(daemon, attempt, witness, limit)

    @asynccontextmanager
    async def conversation(self, attempt: CaseAttempt) -> AsyncGenerator[EvalTarget]:
        """One worker for all turns; a race cannot have one (see `conversation_obstacle`)."""
        try:
            async with self._open_daemon() as daemon:
                talking = _GoentConversation(self._settings, daemon, self._open_daemon)
                try:
                    yield talking
                finally:
                    await talking.close()
        except (DaemonRefused, DaemonGone) as trouble:
            raise daemon_failure(trouble) from trouble

    async def _run_one(
        self, daemon: EvalDaemon, attempt: CaseAttempt, witness: AttemptObserver, limit: float
    ) -> Trace:
        working = GoentAttempt(daemon, self._open_daemon, self._settings.permission_policy, witness)
        (candidate,) = self._settings.candidates
        await working.run(
            spawn_request(
                attempt,
                candidate,
                self._settings,
                cwd=str(attempt.cwd),
                limit_s=_worker_limit(limit),
            )
        )
        if working.failure:
            raise working.failure
        return working.transcript.trace()

    async def _run_race(
        self, daemon: EvalDaemon, attempt: CaseAttempt, witness: AttemptObserver, limit: float
    ) -> Trace:
        candidates = self._settings.candidates
        async with folder_copies(attempt.cwd, len(candidates), self._scratch) as folders:
            beside: list[RacerObserver] = []
            racers = [
                GoentAttempt(
                    daemon,
                    self._open_daemon,
                    self._settings.permission_policy,
                    RacerObserver(witness, beside),
                )
                for _ in candidates
            ]
            requests = [
                spawn_request(
                    attempt,
                    candidate,
                    self._settings,
                    cwd=str(folder),
                    limit_s=_worker_limit(limit),
                )
                for candidate, folder in zip(candidates, folders, strict=True)
            ]
            try:
                winner = await run_race(racers, requests)
            finally:
                spent = race_spending(racers)
                if spent.usage:
                    witness.usage_changed(spent.usage, spent.cost_usd)
            won = folders[racers.index(winner)]
            await replace_contents(won, attempt.cwd)
            return with_moved_paths(winner_trace(winner, racers), won, attempt.cwd)


class _GoentConversation:
    """The turns of one attempt: the first spawns the worker, the others prompt it."""

    def __init__(self, settings: GoentTargetSettings, daemon: EvalDaemon, meet: OpenDaemon) -> None:
        self._settings = settings
        self._daemon = daemon
        self._meet = meet
        self._worker = ""
        self._last: GoentAttempt | None = None

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        with _time_limit(self._settings, attempt) as limit:
            working = GoentAttempt(
                self._daemon, self._meet, self._settings.permission_policy, witness
            )
            turn = 1
            if self._worker:
                asked = prompt_request(attempt, self._worker)
                turn = (await self._daemon.ask("worker_prompt", asked, PromptReply)).turn
            else:
                (candidate,) = self._settings.candidates
                cwd = str(attempt.cwd)
                request = spawn_request(
                    attempt, candidate, self._settings, cwd=cwd, limit_s=_worker_limit(limit)
                )
                self._worker = await working.spawn(request)
            self._last = working
            await working.follow_turn(self._worker, turn)
            if working.failure:
                raise working.failure
            return working.transcript.trace()

    async def close(self) -> None:
        if self._last:
            await self._last.release(self._worker)


@contextmanager
def _time_limit(settings: GoentTargetSettings, attempt: CaseAttempt) -> Generator[float]:
    """Limits the attempt's time, and turns errors into `TargetError`."""
    limit = min(settings.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
    try:
        with anyio.move_on_after(limit) as scope:
            yield limit
    except TargetError as error:
        if error.kind == TurnTimeout.kind:
            raise _timeout_error(limit) from error
        raise
    except (DaemonRefused, DaemonGone) as trouble:
        raise daemon_failure(trouble) from trouble
    if scope.cancelled_caught:
        raise _timeout_error(limit)


def _worker_limit(limit: float) -> float:
    return limit - WORKER_MARGIN_S if limit >= LONG_LIMIT_S else limit


def _timeout_error(limit: float) -> TargetError:
    return TargetError("timeout", f"the worker took longer than {limit:g} s")


def _conversation_obstacle(spec: TargetSpec) -> str:
    method = spec.settings.get("method")
    if spec.settings.get("race"):
        return "lets several workers race, and a conversation is with one: remove `race`"
    if method in ONE_TURN_METHODS:
        return f"works by the method {method!r}, which has one turn: name another `method`"
    return ""


GOENT_KIND: Final = TargetKind(
    name="goent",
    setting_names=setting_names(GoentTargetSettings),
    mistakes=goent_mistakes,
    open=lambda spec, tools: GoentTarget(spec, tools.open_daemon, scratch=tools.scratch),
    harmless=frozenset({"subprovider", "model", "method", "timeout_seconds", "race"}),
    is_agent=True,
    conversation_obstacle=_conversation_obstacle,
)
