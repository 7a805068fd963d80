"""Evaluates a command, which gets the case by placeholders and writes its answer to a file.

Placeholders are filled with quoted values; inside other quotes the two cancel out, and text of a case
would be run. Shells differ in finer points; these rules hold in all of them.
"""

import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final, Literal

import anyio
from msgspec import UNSET, Meta, UnsetType

from goent.domain.errors import ConfigError, WorkerCrashed
from goent.domain.input_mistakes import suggestion
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.suites import EvalCase, TargetSpec, prompt_text
from goent.evals.targets.target_answer import read_answer
from goent.evals.targets.target_kind import TargetKind
from goent.evals.targets.target_settings import (
    read_target_settings,
    setting_names,
    settings_mistakes,
    target_folder,
)
from goent.evals.traces import Trace
from goent.proc.child_process import run_command

QUOTE_REMEDIES: Final[Mapping[str, str]] = {
    "quotes": "inside quotes it could be run; take the quotes around {} away",
    "back": "inside backquotes it could be run; write $(…) instead of them",
    "escape": "a backslash before it undoes that; remove it",
    "comment": "in a comment its second line could be run; take {} out of it",
    "here": "in a here-document quotes are no quotes; give {} as an argument instead",
    "sum": "in arithmetic, $((…)), it could be run; take {} out of it",
}
"""The remedy, by what surrounds a placeholder."""

# Some shells read arithmetic even where it is not closed like that.
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
    """For each character in such a part, its key in `QUOTE_REMEDIES`."""
    return {place: how for begin, end, how in _quote_spans(command) for place in range(begin, end)}


def _quote_spans(command: str) -> Iterator[tuple[int, int, str]]:
    inside: list[str] = []  # opened and not closed yet
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
    """Where the here-documents that begin at `at` have ended."""
    for word, indented in awaited:
        tabs = r"\t*" if indented else ""
        last = re.compile(rf"^{tabs}{re.escape(word)}$", re.MULTILINE).search(command, at)
        at = last.end() if last else len(command)
    return at


CHECK_PAUSE_S = 0.5  # how long a result holds for cases that start together
MOST_CHECKS = 3  # later cases do not wait for it again


class HealthCheck(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address or a command that must succeed."""

    type: Literal["http", "command"] | None = None
    url: str = ""
    command: str | tuple[str, ...] = ""
    cwd: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0


class TargetHealth:
    """The health of one target: checked until it is healthy, a few times at most."""

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
                more = "" if again else f" (checked {MOST_CHECKS} times; it is not checked again)"
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
        output = (done.errors or done.output)[-300:].strip()
        why = f": {output}" if output else ""
        return f"healthcheck {words!r} ended with {done.exit}{why}" if done.exit else ""


async def _http_trouble(check: HealthCheck) -> str:
    """Reads the status alone: the body may be long, or never end."""
    import httpx2  # noqa: PLC0415 (few targets have an address)

    limit = check.timeout_seconds
    with anyio.move_on_after(limit):  # the client's own limit is for each read
        try:
            async with (
                httpx2.AsyncClient(timeout=limit, trust_env=False) as client,
                client.stream("GET", check.url, follow_redirects=True) as answer,
            ):
                failed = f"healthcheck {check.url!r} answered {answer.status_code}"
                return "" if answer.is_success else failed
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"healthcheck {check.url!r} did not answer: {error or type(error).__name__}"
    return f"healthcheck {check.url!r} did not answer within {limit:g} s"


PLACEHOLDERS: Final = (
    *("{PROMPT}", "{PROMPT_FILE}", "{OUTPUT_FILE}"),
    *("{FILES}", "{EVAL_ID}", "{ATTEMPT}"),
)
UNTRUSTED_PLACEHOLDERS: Final = ("{PROMPT}", "{FILES}", "{EVAL_ID}")  # text of suites or agents
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{[A-Z_]+\}")  # `${HOME}` is the shell's
LARGEST_ANSWER: Final = 16 * 1024 * 1024  # bytes of an answer
SHOWN_TAIL: Final = 500  # characters of a failed command's output


class CliSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`command` runs in a shell, with placeholders filled in quoted; `cwd` is relative to the suite."""

    command: str | UnsetType = UNSET
    command_template: str | UnsetType = UNSET  # its older name
    cwd: str | None = None
    env: Mapping[str, str] = {}
    timeout_seconds: Annotated[float, Meta(gt=0)] | None = None
    healthcheck: HealthCheck | None = None
    files_format: str = "{path}"
    # AgentV's files have them; here they have no effect.
    verbose: bool = False
    keep_temp_files: bool = False


def cli_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    yield from settings_mistakes(settings, CliSettings)
    if not {"command", "command_template"} & settings.keys():
        yield "command", "is missing; say what is run, with {PROMPT_FILE} and {OUTPUT_FILE}"
    elif {"command", "command_template"} <= settings.keys():
        yield "command_template", "`command` says the same; keep one of them"
    for key in ("command", "command_template"):
        if isinstance(command := settings.get(key), str):
            if command.strip():
                yield from _placeholder_mistakes(key, command)
            else:
                yield key, "must not be empty"
    check: object = settings.get("healthcheck")
    if isinstance(check, dict) and "url" not in check and "command" not in check:
        yield "healthcheck", "checks nothing; give a url or a command"


def _placeholder_mistakes(key: str, command: str) -> Iterator[tuple[str, str]]:
    found = dict.fromkeys(_PLACEHOLDER.findall(command))
    surrounded = quote_contexts(command)
    undone = ((one[0], surrounded.get(one.start())) for one in _PLACEHOLDER.finditer(command))
    for name, how in dict.fromkeys(undone):
        if how and name in UNTRUSTED_PLACEHOLDERS:
            yield key, f"{name} is already quoted by go-ent: {QUOTE_REMEDIES[how].format(name)}"
    for name in found:
        if name not in PLACEHOLDERS:
            yield key, f"{name!r} is not a placeholder; {suggestion(name, PLACEHOLDERS)}"
    if "{OUTPUT_FILE}" not in found:
        yield key, "has no answer: let it write one to {OUTPUT_FILE}"


class CliTarget:
    """Runs a process for each attempt; nothing that it starts outlives it."""

    def __init__(
        self, spec: TargetSpec, environ: Mapping[str, str], *, scratch: Path | None = None
    ) -> None:
        settings = read_target_settings(spec, CliSettings)
        command = settings.command_template if settings.command is UNSET else settings.command
        if not isinstance(command, str) or not command.strip():
            raise ConfigError(f"{spec.place.file}: target {spec.name!r} has no `command`")
        self._command = command
        self._settings = settings
        self._scratch = scratch
        self._environ = {**environ, **settings.env}
        self._home = target_folder(spec)
        self._health = TargetHealth(settings.healthcheck, self._environ, self._home)

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
        output = (done.errors or done.output)[-SHOWN_TAIL:].strip() or "no output"
        if done.exit is None:
            raise TargetError("timeout", f"the command took longer than {limit:g} s: {output}")
        if done.exit:
            raise TargetError("command_failed", f"the command ended with {done.exit}: {output}")
        if not answer.exists():
            raise TargetError(
                "no_answer",
                f"the command wrote nothing to {{OUTPUT_FILE}}; its output: {done.output[-SHOWN_TAIL:]}",
            )
        return read_answer(
            _read_answer_file(answer),
            duration_ms=took,
            warn=lambda why: witness.warn(f"{attempt.case.id!r} by {attempt.target!r}: {why}"),
        )

    def _cwd(self, attempt: CaseAttempt) -> Path:
        """The suite's folder, unless the case has a workspace; a judge's case is in no suite."""
        suite = attempt.case.place.file
        home = Path(suite).parent.absolute() if suite else self._home
        if self._settings.cwd:
            return home / self._settings.cwd
        return attempt.cwd if attempt.case.workspace else home

    def _fill_placeholders(self, attempt: CaseAttempt, asked: Path, answer: Path) -> str:
        form = self._settings.files_format
        files = (
            form.replace("{path}", str(path)).replace("{basename}", path.name)
            for message in attempt.case.input
            for path in message.files
        )
        values = {
            "{PROMPT}": shlex.quote(prompt_text(attempt.case)),
            "{PROMPT_FILE}": shlex.quote(str(asked)),
            "{OUTPUT_FILE}": shlex.quote(str(answer)),
            "{FILES}": " ".join(map(shlex.quote, files)),
            "{EVAL_ID}": shlex.quote(attempt.case.id),
            "{ATTEMPT}": str(attempt.number),
        }
        # In one pass: a placeholder in the prompt itself is not filled.
        return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), self._command)


def _read_answer_file(answer: Path) -> bytes:
    """What the command left there need not be a file: a pipe is not waited for."""
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


def _folders(spec: TargetSpec, case: EvalCase) -> Iterator[tuple[str, Path]]:
    """Its `cwd` is relative to the suite, that of its health check to the targets file."""
    if isinstance(cwd := spec.settings.get("cwd"), str):
        yield "cwd", Path(case.place.file).parent.absolute() / cwd
    check: object = spec.settings.get("healthcheck")
    if isinstance(check, dict) and isinstance(cwd := check.get("cwd"), str):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (from a file)
        yield "healthcheck.cwd", target_folder(spec) / cwd


COMMAND_KIND: Final = TargetKind(
    name="cli",
    setting_names=setting_names(CliSettings),
    mistakes=cli_mistakes,
    open=lambda spec, tools: CliTarget(spec, tools.environ, scratch=tools.scratch),
    is_confined=False,
    reads_settings=True,
    folders=_folders,
    no_status="a command fails by its exit code, which is not an HTTP status",
    unsupported=("attachments_format",),
)
