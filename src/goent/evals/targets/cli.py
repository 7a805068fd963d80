"""How is a command evaluated? It is told the case by placeholders, and answers in a file."""

import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from goent.config.tree import suggestion
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.ports import Attempt, TargetError, Witness
from goent.evals.prompts import question
from goent.evals.suites import TargetSpec
from goent.evals.targets.answers import read_answer
from goent.evals.targets.health import Health, HealthCheck
from goent.evals.targets.quoting import REMEDIES, around
from goent.evals.targets.settings import home_of, misfits, settings_of
from goent.evals.traces import Trace
from goent.proc import run

PLACEHOLDERS: Final = (
    *("{PROMPT}", "{PROMPT_FILE}", "{OUTPUT_FILE}"),
    *("{FILES}", "{EVAL_ID}", "{ATTEMPT}"),
)
SAID: Final = ("{PROMPT}", "{FILES}", "{EVAL_ID}")  # by suites, or agents: it could be anything
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{[A-Z_]+\}")  # `${HOME}` is the shell's
LARGEST: Final = 16 * 1024 * 1024  # bytes of an answer
TAIL = 500  # characters of what a failed command said


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
    yield from misfits(settings, CliSettings)
    if not {"command", "command_template"} & settings.keys():
        yield "command", "is missing; say what is run, with {PROMPT_FILE} and {OUTPUT_FILE}"
    elif {"command", "command_template"} <= settings.keys():
        yield "command_template", "`command` says the same; keep one of them"
    for key in ("command", "command_template"):
        if isinstance(command := settings.get(key), str):
            yield from _misplaced(key, command) if command.strip() else [(key, "must not be empty")]
    check: object = settings.get("healthcheck")
    if isinstance(check, dict) and "url" not in check and "command" not in check:
        yield "healthcheck", "has nothing to ask; give a url or a command"


def _misplaced(key: str, command: str) -> Iterator[tuple[str, str]]:
    found = dict.fromkeys(_PLACEHOLDER.findall(command))
    surrounded = around(command)
    undone = ((one[0], surrounded.get(one.start())) for one in _PLACEHOLDER.finditer(command))
    for name, how in dict.fromkeys(undone):
        if how and name in SAID:
            yield key, f"{name} is put in quoted by go-ent: {REMEDIES[how].format(name)}"
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
        told = settings_of(spec, CliSettings)
        command = told.command_template if told.command is UNSET else told.command
        if not isinstance(command, str) or not command.strip():
            raise ConfigError(f"{spec.place.file}: target {spec.name!r} has no `command`")
        self._command = command
        self._told = told
        self._scratch = scratch
        self._environ = {**environ, **told.env}
        self._home = home_of(spec)
        self._health = Health(told.healthcheck, self._environ, self._home)

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        await self._health.ensure()
        with TemporaryDirectory(prefix="goent-eval-", dir=self._scratch) as folder:
            return await self._run(attempt, Path(folder), witness)

    async def _run(self, attempt: Attempt, folder: Path, witness: Witness) -> Trace:
        asked, answer = folder / "prompt.txt", folder / "answer"
        if "{PROMPT_FILE}" in self._command:
            asked.write_text(question(attempt.case), encoding="utf-8")
        limit = min(self._told.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
        began = time.monotonic()
        done = await run(
            ["/bin/sh", "-c", self._filled(attempt, asked, answer)],
            cwd=self._cwd(attempt),
            env=self._environ,
            timeout=limit,
        )
        took = (time.monotonic() - began) * 1000
        said = (done.errors or done.output)[-TAIL:].strip() or "it said nothing"
        if done.exit is None:
            raise TargetError("timeout", f"the command took longer than {limit:g} s: {said}")
        if done.exit:
            raise TargetError("command_failed", f"the command ended with {done.exit}: {said}")
        if not answer.exists():
            raise TargetError(
                "no_answer",
                f"the command wrote nothing to {{OUTPUT_FILE}}; it said: {done.output[-TAIL:]}",
            )
        return read_answer(
            _content(answer),
            duration_ms=took,
            warn=lambda why: witness.warn(f"{attempt.case.id!r} by {attempt.target!r}: {why}"),
        )

    def _cwd(self, attempt: Attempt) -> Path:
        """A command is at home where the suite is, unless the case has a workspace for it."""
        suite = attempt.case.place.file
        home = (
            Path(suite).parent.absolute() if suite else self._home
        )  # a judge's case is in no suite
        if self._told.cwd:
            return home / self._told.cwd
        return attempt.cwd if attempt.case.workspace else home

    def _filled(self, attempt: Attempt, asked: Path, answer: Path) -> str:
        files = [path for said in attempt.case.input for path in said.files]
        formatted = (
            self._told.files_format.replace("{path}", str(path)).replace("{basename}", path.name)
            for path in files
        )
        values = {
            "{PROMPT}": shlex.quote(question(attempt.case)),
            "{PROMPT_FILE}": shlex.quote(str(asked)),
            "{OUTPUT_FILE}": shlex.quote(str(answer)),
            "{FILES}": " ".join(map(shlex.quote, formatted)),
            "{EVAL_ID}": shlex.quote(attempt.case.id),
            "{ATTEMPT}": str(attempt.number),
        }
        # In one pass: a prompt that speaks of a placeholder is not filled in again.
        return _PLACEHOLDER.sub(lambda found: values.get(found[0], found[0]), self._command)


def _content(answer: Path) -> bytes:
    """Of what the command left there, which need not be a file: nobody waits for a pipe to speak."""
    try:
        descriptor = os.open(answer, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise TargetError("bad_answer", f"the answer cannot be read: {error.strerror}") from error
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST:
            raise TargetError(
                "bad_answer", f"{{OUTPUT_FILE}} must be a file of at most {LARGEST:,} bytes"
            )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
