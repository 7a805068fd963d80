"""Evaluates a command, which gets the case by placeholders and writes its answer to a file.

An object tells `text`, or `output` (older: `output_messages`) as messages with tool calls, and how
much it took. Whatever else it is, it is what the assistant said. A null is as good as nothing.

Values of placeholders are quoted for a place where nothing is quoted: inside other quotes the two undo each
other, and what a case says would be run. Shells differ in finer points; what is asked here is the same in all.
"""

import os
import re
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, Literal

import anyio
import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from goent.config.settings_tree import suggestion
from goent.domain.errors import ConfigError, WorkerCrashed
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.suites import TargetSpec, prompt_text
from goent.evals.targets.target_settings import (
    read_target_settings,
    settings_mistakes,
    target_folder,
)
from goent.evals.traces import CallStatus, TokenUsage, Trace, TracedCall, TracedMessage
from goent.proc.child_process import run_command

Warn = Callable[[str], None]
_ANSWER_KEYS: Final = ("output", "output_messages", "text")


class _AnswerCall(Struct, kw_only=True, frozen=True):
    tool: str
    id: str | None = None
    input: object = None
    output: object = None
    status: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    duration_ms: float | None = None


class _AnswerMessage(Struct, kw_only=True, frozen=True):
    role: str | None = None
    content: object = None
    tool_calls: tuple[_AnswerCall, ...] | None = None
    start_time: str | None = None
    end_time: str | None = None
    parent: str | None = None


class _AnswerTokens(Struct, kw_only=True, frozen=True):
    input: int | None = None
    output: int | None = None
    cached: int | None = None
    reasoning: int | None = None


class _CommandAnswer(Struct, kw_only=True, frozen=True):
    text: str | None = None
    output: tuple[_AnswerMessage, ...] | str | None = None
    output_messages: tuple[_AnswerMessage, ...] | None = None
    token_usage: _AnswerTokens | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    start_time: str | None = None
    end_time: str | None = None
    file_changes: str | None = None


def read_answer(
    said: bytes, *, duration_ms: float | None = None, warn: Warn = lambda _: None
) -> Trace:
    """The trace of an attempt that answered with this; `duration_ms` where it tells none itself.

    `warn` is told of an answer that wants to be more than text, and is not.
    """
    try:
        answer = msgspec.json.decode(said, type=_CommandAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if keys := _answer_keys(said):
            tells = " and ".join(f"`{key}`" for key in keys)
            warn(f"an answer with {tells} is taken for text, its tool calls too, for {error}")
        text = said.decode(errors="replace").strip()
        return Trace(messages=_assistant_message(text), duration_ms=duration_ms)
    messages = _traced_messages(answer)
    if messages is None:  # an object of some other kind: it is the answer itself
        return Trace(messages=_assistant_message(said.decode().strip()), duration_ms=duration_ms)
    told = answer.token_usage
    return Trace(
        messages=messages,
        usage=TokenUsage(
            input=told.input or 0,
            output=told.output or 0,
            cached=told.cached or 0,
            reasoning=told.reasoning or 0,
        )
        if told
        else None,
        cost_usd=answer.cost_usd,
        duration_ms=duration_ms if answer.duration_ms is None else answer.duration_ms,
        start_time=answer.start_time,
        end_time=answer.end_time,
        file_changes=answer.file_changes or "",
    )


def _answer_keys(said: bytes) -> list[str]:
    """Which keys of an answer it has, if it is an object at all."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = msgspec.json.decode(said, type=dict[str, msgspec.Raw])
        return [key for key in _ANSWER_KEYS if key in found]
    return []


def _traced_messages(answer: _CommandAnswer) -> tuple[TracedMessage, ...] | None:
    told = answer.output_messages if answer.output is None else answer.output
    if isinstance(told, str):
        return _assistant_message(told)
    if told is not None:
        return tuple(map(_traced_message, told))
    return None if answer.text is None else _assistant_message(answer.text)


def _assistant_message(text: str) -> tuple[TracedMessage, ...]:
    return (TracedMessage(role="assistant", content=text),)


def _traced_message(told: _AnswerMessage) -> TracedMessage:
    return TracedMessage(
        role=told.role or "assistant",
        content="" if told.content is None else told.content,
        tool_calls=tuple(map(_traced_call, told.tool_calls or ())),
        start_time=told.start_time,
        end_time=told.end_time,
        parent=told.parent or None,
    )


def _traced_call(told: _AnswerCall) -> TracedCall:
    return TracedCall(
        tool=told.tool,
        id=told.id or "",
        input=told.input,
        output=told.output,
        status=_call_status(told.status),
        start_time=told.start_time,
        end_time=told.end_time,
        duration_ms=told.duration_ms,
    )


def _call_status(told: str | None) -> CallStatus:
    match told:
        case "ok" | "error" | "timeout" | "cancelled":
            return told
        case _:
            return "unknown"


def read_fixture(
    answer: Mapping[str, object] | Sequence[object] | str, warn: Warn = lambda _: None
) -> Trace:
    """The same, of an answer that stands in a file of targets or fixtures."""
    said = answer.encode() if isinstance(answer, str) else msgspec.json.encode(answer)
    return read_answer(said, warn=warn)


QUOTE_REMEDIES: Final[Mapping[str, str]] = {
    "quotes": "inside quotes it could be run; take the quotes around {} away",
    "back": "inside backquotes it could be run; write $(…) instead of them",
    "escape": "a backslash before it undoes that; take it away",
    "comment": "in a comment its second line could be run; take {} out of it",
    "here": "in a here-document quotes are no quotes; give {} as an argument instead",
    "sum": "in arithmetic, $((…)), it could be run; take {} out of it",
}
"""What is to be done, by what surrounds it."""

# What does not close as arithmetic does may be some all the same, to one shell or another.
_SUM: Final = r"\(\((?:(?:[^()]|\([^()]*\))*\)\)|.*)"
_BACK: Final = r"(?P<back>`(?:\\.|[^`\\])*`?)"
_ESCAPE: Final = r"(?P<escape>\\.)"
_UNQUOTED: Final = re.compile(
    rf"(?P<quotes>'[^']*'?)|{_ESCAPE}|(?P<double>\")|{_BACK}"
    rf"|(?P<sum>\$?{_SUM})|(?P<open>\$?\()|(?P<close>\))"
    r"|(?P<comment>(?<![^\s;&|()<>])\#[^\n]*)"
    r"|<<(?P<dash>-?)[ \t]*(?P<here>(?:\\.|'[^']*'|\"[^\"]*\"|[^\s;&|()<>`'\"\\])+)"
    r"|(?P<line>\n)|.",
    re.DOTALL,
)
_DOUBLE_QUOTED: Final = re.compile(
    rf"(?P<double>\")|{_ESCAPE}|(?P<sum>\${_SUM})|(?P<open>\$\()|{_BACK}|(?P<quotes>.)", re.DOTALL
)
_QUOTE_MARKS: Final = re.compile(r"['\"\\]")


def quote_contexts(command: str) -> Mapping[int, str]:
    """Which characters have something around them that undoes quotes: a key of `REMEDIES` each."""
    return {place: how for begin, end, how in _quote_spans(command) for place in range(begin, end)}


def _quote_spans(command: str) -> Iterator[tuple[int, int, str]]:
    inside: list[str] = []  # what was opened, and is not closed yet
    awaited: list[tuple[str, bool]] = []  # here-documents that begin with the next line
    at = 0
    while at < len(command):
        found = (_DOUBLE_QUOTED if inside[-1:] == ['"'] else _UNQUOTED).match(command, at)
        assert found
        how, begin, at = found.lastgroup, at, found.end()
        match how:
            case "double" if inside[-1:] == ['"']:
                inside.pop()
            case "double" | "open":
                inside.append(found[0][-1])
            case "close":
                del inside[-1:]
            case "here":
                awaited.append((_QUOTE_MARKS.sub("", found["here"]), bool(found["dash"])))
                yield begin, at, how
            case "line":
                at = _here_document_end(command, at, awaited)
                awaited.clear()
                yield begin, at, "here"
            case str():
                yield begin, at, how
            case None:
                pass


def _here_document_end(command: str, at: int, awaited: list[tuple[str, bool]]) -> int:
    """Where the here-documents that begin there have ended."""
    for word, indented in awaited:
        tabs = r"\t*" if indented else ""
        last = re.compile(rf"^{tabs}{re.escape(word)}$", re.MULTILINE).search(command, at)
        at = last.end() if last else len(command)
    return at


CHECK_PAUSE_S = 0.5  # for which an answer holds for all: they ask together
MOST_CHECKS = 3  # for what is not there by then, nobody should wait before each case


class HealthCheck(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that must answer with success, or a command that must."""

    type: Literal["http", "command"] | None = None
    url: str = ""
    command: str | tuple[str, ...] = ""
    cwd: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0


class TargetHealth:
    """Of one target. What was well once is not asked again; what was not, is, a few times."""

    def __init__(self, check: HealthCheck | None, environ: Mapping[str, str], here: Path) -> None:
        self._check = check
        self._environ = environ
        self._here = here
        self._lock = anyio.Lock()
        self._is_healthy = check is None
        self._checks = 0
        self._next_check = 0.0
        self._trouble = ""

    async def ensure(self) -> None:
        """Raises a `TargetError` of the kind `unhealthy`."""
        if self._is_healthy or self._check is None:
            return
        async with self._lock:
            if self._is_healthy:
                return
            if self._checks < MOST_CHECKS and anyio.current_time() >= self._next_check:
                self._checks += 1
                self._trouble = await self._check_all(self._check)
                self._next_check = anyio.current_time() + CHECK_PAUSE_S
            self._is_healthy = not self._trouble
            if self._trouble:
                again = self._checks < MOST_CHECKS
                more = "" if again else f" (asked {MOST_CHECKS} times; it is not asked again)"
                raise TargetError("unhealthy", f"{self._trouble}{more}", retryable=again)

    async def _check_all(self, check: HealthCheck) -> str:
        troubles = [
            await _http_trouble(check) if check.url else "",
            await self._command_trouble(check) if check.command else "",
        ]
        return "; ".join(filter(None, troubles))

    async def _command_trouble(self, check: HealthCheck) -> str:
        words = check.command
        command = ("/bin/sh", "-c", words) if isinstance(words, str) else words
        try:
            done = await run_command(
                command,
                cwd=self._here / (check.cwd or "."),
                env=self._environ,
                timeout=check.timeout_seconds,
            )
        except WorkerCrashed as error:
            return f"healthcheck: {error}"
        if done.exit is None:
            return f"healthcheck {words!r} did not end within {check.timeout_seconds:g} s"
        said = (done.errors or done.output)[-300:].strip()
        why = f": {said}" if said else ""
        return f"healthcheck {words!r} ended with {done.exit}{why}" if done.exit else ""


async def _http_trouble(check: HealthCheck) -> str:
    """By its status alone: what else it says may be long, or never end."""
    import httpx2  # noqa: PLC0415 (few targets have an address)

    limit = check.timeout_seconds
    with anyio.move_on_after(limit):  # a client's own limit is for each piece
        try:
            async with (
                httpx2.AsyncClient(timeout=limit, trust_env=False) as client,
                client.stream("GET", check.url, follow_redirects=True) as answer,
            ):
                said = f"healthcheck {check.url!r} said {answer.status_code}"
                return "" if answer.is_success else said
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"healthcheck {check.url!r} did not answer: {error or type(error).__name__}"
    return f"healthcheck {check.url!r} did not answer within {limit:g} s"


PLACEHOLDERS: Final = (
    *("{PROMPT}", "{PROMPT_FILE}", "{OUTPUT_FILE}"),
    *("{FILES}", "{EVAL_ID}", "{ATTEMPT}"),
)
UNTRUSTED_PLACEHOLDERS: Final = (
    "{PROMPT}",
    "{FILES}",
    "{EVAL_ID}",
)  # by suites, or agents: it could be anything
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{[A-Z_]+\}")  # `${HOME}` is the shell's
LARGEST_ANSWER: Final = 16 * 1024 * 1024  # bytes of an answer
SHOWN_TAIL = 500  # characters of what a failed command said


Seconds = Annotated[float, Meta(gt=0)]


class CliSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` is for the shell; `{PROMPT}` and the others are put in quoted. `cwd` is seen from the suite."""

    command: str | UnsetType = UNSET
    command_template: str | UnsetType = UNSET  # its older name
    cwd: str | None = None
    env: Mapping[str, str] = {}
    timeout_seconds: Seconds | None = None
    healthcheck: HealthCheck | None = None
    files_format: str = "{path}"
    # AgentV's files have them; here they have no effect.
    verbose: bool = False
    keep_temp_files: bool = False


def cli_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of such a target: paths and words."""
    yield from settings_mistakes(settings, CliSettings)
    if not {"command", "command_template"} & settings.keys():
        yield "command", "is missing; say what is run, with {PROMPT_FILE} and {OUTPUT_FILE}"
    elif {"command", "command_template"} <= settings.keys():
        yield "command_template", "`command` says the same; keep one of them"
    for key in ("command", "command_template"):
        if isinstance(command := settings.get(key), str):
            yield from (
                _placeholder_mistakes(key, command)
                if command.strip()
                else [(key, "must not be empty")]
            )
    check: object = settings.get("healthcheck")
    if isinstance(check, dict) and "url" not in check and "command" not in check:
        yield "healthcheck", "has nothing to ask; give a url or a command"


def _placeholder_mistakes(key: str, command: str) -> Iterator[tuple[str, str]]:
    found = dict.fromkeys(_PLACEHOLDER.findall(command))
    surrounded = quote_contexts(command)
    undone = ((one[0], surrounded.get(one.start())) for one in _PLACEHOLDER.finditer(command))
    for name, how in dict.fromkeys(undone):
        if how and name in UNTRUSTED_PLACEHOLDERS:
            yield key, f"{name} is put in quoted by go-ent: {QUOTE_REMEDIES[how].format(name)}"
    for name in found:
        if name not in PLACEHOLDERS:
            yield key, f"{name!r} is no placeholder; {suggestion(name, PLACEHOLDERS)}"
    if "{OUTPUT_FILE}" not in found:
        yield key, "could never answer: let it write its answer to {OUTPUT_FILE}"


class CliTarget:
    """The port `Target`, by a process for each attempt; nothing that it starts outlives it."""

    def __init__(
        self, spec: TargetSpec, environ: Mapping[str, str], *, scratch: Path | None = None
    ) -> None:
        """Prompt and answer are in a folder in `scratch` meanwhile."""
        told = read_target_settings(spec, CliSettings)
        command = told.command_template if told.command is UNSET else told.command
        if not isinstance(command, str) or not command.strip():
            raise ConfigError(f"{spec.place.file}: target {spec.name!r} has no `command`")
        self._command = command
        self._settings = told
        self._scratch = scratch
        self._environ = {**environ, **told.env}
        self._home = target_folder(spec)
        self._health = TargetHealth(told.healthcheck, self._environ, self._home)

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        await self._health.ensure()
        with TemporaryDirectory(prefix="goent-eval-", dir=self._scratch) as folder:
            return await self._run(attempt, Path(folder), witness)

    async def _run(self, attempt: CaseAttempt, folder: Path, witness: AttemptObserver) -> Trace:
        asked, answer = folder / "prompt.txt", folder / "answer"
        if "{PROMPT_FILE}" in self._command:
            asked.write_text(prompt_text(attempt.case), encoding="utf-8")
        limit = min(self._settings.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
        began = time.monotonic()
        done = await run_command(
            ["/bin/sh", "-c", self._fill_placeholders(attempt, asked, answer)],
            cwd=self._cwd(attempt),
            env=self._environ,
            timeout=limit,
        )
        took = (time.monotonic() - began) * 1000
        said = (done.errors or done.output)[-SHOWN_TAIL:].strip() or "it said nothing"
        if done.exit is None:
            raise TargetError("timeout", f"the command took longer than {limit:g} s: {said}")
        if done.exit:
            raise TargetError("command_failed", f"the command ended with {done.exit}: {said}")
        if not answer.exists():
            raise TargetError(
                "no_answer",
                f"the command wrote nothing to {{OUTPUT_FILE}}; it said: {done.output[-SHOWN_TAIL:]}",
            )
        return read_answer(
            _read_answer_file(answer),
            duration_ms=took,
            warn=lambda why: witness.warn(f"{attempt.case.id!r} by {attempt.target!r}: {why}"),
        )

    def _cwd(self, attempt: CaseAttempt) -> Path:
        """A command is at home where the suite is, unless the case has a workspace for it."""
        suite = attempt.case.place.file
        home = (
            Path(suite).parent.absolute() if suite else self._home
        )  # a judge's case is in no suite
        if self._settings.cwd:
            return home / self._settings.cwd
        return attempt.cwd if attempt.case.workspace else home

    def _fill_placeholders(self, attempt: CaseAttempt, asked: Path, answer: Path) -> str:
        files = [path for said in attempt.case.input for path in said.files]
        formatted = (
            self._settings.files_format.replace("{path}", str(path)).replace(
                "{basename}", path.name
            )
            for path in files
        )
        values = {
            "{PROMPT}": shlex.quote(prompt_text(attempt.case)),
            "{PROMPT_FILE}": shlex.quote(str(asked)),
            "{OUTPUT_FILE}": shlex.quote(str(answer)),
            "{FILES}": " ".join(map(shlex.quote, formatted)),
            "{EVAL_ID}": shlex.quote(attempt.case.id),
            "{ATTEMPT}": str(attempt.number),
        }
        # In one pass: a prompt that speaks of a placeholder is not filled in again.
        return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), self._command)


def _read_answer_file(answer: Path) -> bytes:
    """Of what the command left there, which need not be a file: nobody waits for a pipe to speak."""
    try:
        descriptor = os.open(answer, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError("bad_answer", f"the answer cannot be read: {error.strerror}") from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST_ANSWER:
            raise TargetError(
                "bad_answer", f"{{OUTPUT_FILE}} must be a file of at most {LARGEST_ANSWER:,} bytes"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
