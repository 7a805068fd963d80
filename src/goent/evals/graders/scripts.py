"""What does a program say of an attempt? It reads JSON about it, and prints its opinion."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import msgspec

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.evals.commands import Commands, Order
from goent.evals.graders.findings import Asked, Finding, Look, Misfit, broken, share
from goent.evals.graders.questions import bounded
from goent.evals.graders.settings import Composition, Settable, read
from goent.evals.graders.telling import payload
from goent.evals.grades import Assertion
from goent.evals.suites import Case
from goent.plain_files import read_plain
from goent.proc.run import MAX_OUTPUT, Completed

LARGEST_SCRIPT: Final = 1024 * 1024  # bytes; what is larger is a program
SHOWN: Final = 2_000  # of what a script said
REMOVED: Final = (
    "The directory of the attempt, which it looks at, was removed: "
    "run the case again, with --keep-workspaces always."
)
_SCRIPTED: Final = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|(?:ba|da|z)?sh")
_SCRIPTS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".sh")
WORKSPACE: Final = ("GOENT_WORKSPACE_PATH", "AGENTV_WORKSPACE_PATH")


class Script(Settable, frozen=True, kw_only=True):
    """A relative `cwd` is seen from the suite's folder, which is where it runs otherwise."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    cwd: str = "."
    timeout_seconds: float = 60.0
    config: object = None


class _Opinion(Value, frozen=True, kw_only=True):
    score: float | None = None
    assertions: tuple[Assertion, ...] = ()
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    details: object = None


def check_script(look: Look) -> None:
    """Raises `Misfit`: also for a program of which a path is given, or a script, and that is not there."""
    script = read(look.spec, Script)
    folder = _folder(script, look)
    if not os.path.isdir(folder):  # noqa: PTH112 (a Path raises for what is too long)
        raise Misfit(
            f"Grader {look.spec.name!r}: there is no folder {str(folder)!r}; correct `cwd`."
        )
    for name in _files_of(script.command):
        if not os.path.isfile(folder / name):  # noqa: PTH113 (the same)
            raise Misfit(
                f"Grader {look.spec.name!r}: there is no file {name!r} in {str(folder)!r}; "
                "correct the path, or `cwd`."
            )


def _files_of(command: Sequence[str]) -> Iterator[str]:
    """What has to be there before it starts: an interpreter takes its first word for its script."""
    if "/" in command[0]:
        yield command[0]
    if len(command) > 1 and _SCRIPTED.fullmatch(Path(command[0]).name):
        script = command[1]
        if script.endswith(_SCRIPTS) and not script.startswith("-"):
            yield script


def code_grader(commands: Commands, scratch: Path | None = None) -> Asked:
    """Scripts are told where the attempt worked; a long answer is in a folder in `scratch`."""

    async def look_at(look: Look) -> Finding:
        script = read(look.spec, Script)
        if look.trace.workspace_removed and _looks_there(script, look):
            return msgspec.structs.replace(broken(REMOVED), error=f"{look.spec.name}: {REMOVED}")
        try:
            with TemporaryDirectory(prefix="goent-grader-", dir=scratch) as folder:
                told = msgspec.json.encode(payload(look, script.config, Path(folder)))
                return await _asked(script, look, told, commands, handed=Path(folder))
        except OSError as error:
            return broken(f"{script.command[0]!r} cannot be told about the attempt: {error}")

    return look_at


def _looks_there(script: Script, look: Look) -> bool:
    """Whether it asks for the attempt's directory, by a name that it has to spell."""
    for word in script.command:
        text = word.encode(errors="replace")
        with suppress(OSError, ValueError):  # most words are no files
            path = _folder(script, look) / word
            text += read_plain(path, LARGEST_SCRIPT)
        if b"workspace_path" in text.lower():
            return True
    return False


def code_aggregator(commands: Commands) -> Asked:
    """Makes one opinion of those of a composite's members, told by their names."""

    async def look_at(look: Look) -> Finding:
        how = read(look.spec, Composition).aggregator
        if not how.command:
            raise Misfit(f"Grader {look.spec.name!r}: its aggregator has no `command`.")
        script = Script(command=how.command, cwd=how.cwd, timeout_seconds=how.timeout_seconds)
        results = {grade.name: grade for grade in look.members}
        return await _asked(script, look, msgspec.json.encode({"results": results}), commands)

    return look_at


async def _asked(
    script: Script, look: Look, told: bytes, commands: Commands, *, handed: Path | None = None
) -> Finding:
    """A script that cannot say anything is broken, and harms nobody else.

    One that cannot even be started has not looked at the attempt: there is no score.
    """
    place = look.trace.workspace_path
    order = Order(
        command=script.command,
        cwd=_folder(script, look),
        stdin=told,
        timeout_s=script.timeout_seconds,
        workspace=Path(place) if place else None,
        told=_files(look.case),
        handed=handed,
        env=dict.fromkeys(WORKSPACE, place) if place else {},
    )
    try:
        ran = await commands.run(order)
    except WorkerCrashed as error:
        found = broken(str(error))
        return found if look.compat else msgspec.structs.replace(found, error=str(error))
    done = ran.done
    if done.exit is None:
        return broken(f"{script.command[0]!r} ran for more than {script.timeout_seconds:g} s.")
    if ran.hint and done.errors:
        done = msgspec.structs.replace(done, errors=f"{done.errors}\n{ran.hint}")
    return opinion(done, compat=look.compat)


def _files(case: Case) -> tuple[Path, ...]:
    """What a script may want to look at: it is told their names."""
    return (*(path for said in case.input for path in said.files), *case.guidelines)


def _folder(script: Script, look: Look) -> Path:
    return Path(look.case.place.file).parent.absolute() / script.cwd


def opinion(done: Completed, *, compat: bool) -> Finding:
    """JSON with a score, or with assertions to take it from; else the exit status decides."""
    said = done.output.strip()
    if len(done.output.encode()) >= MAX_OUTPUT:
        return broken(f"It printed more than {MAX_OUTPUT} bytes; {_short(said)}")
    if not compat:
        return _strict(done, said)
    parsed = _parsed(said)
    if done.exit != 0 and (isinstance(parsed, _Opinion) or done.errors or not said):
        return _crashed(done, said)
    if isinstance(parsed, _Opinion):
        return _scored(parsed, compat=True)
    return _plain(float(done.exit == 0), said)


def _strict(done: Completed, said: str) -> Finding:
    """Only text is judged by the exit status: whoever crashed, or speaks JSON, did not mean that.

    A silent 1 is a no, as of `grep -q`.
    """
    verdict = _verdict_in(said)
    if done.exit == 1 and not said and not done.errors:
        return _plain(0.0, "It ended with 1.")
    if done.exit != 0 and (done.exit is None or done.exit < 0 or done.errors or not said):
        return _crashed(done, said)
    if verdict is None:
        return _plain(float(done.exit == 0), said)
    if done.exit != 0:
        return _crashed(done, said)
    score = _bare(verdict)
    if score is not None:
        return _plain(score, said) if 0 <= score <= 1 else _beyond(score)
    parsed = _parsed(verdict)
    if isinstance(parsed, _Opinion):
        return _scored(parsed, compat=False)
    return broken(f"Its JSON is no opinion ({parsed}): {_short(said)}")


def _verdict_in(said: str) -> str | None:
    """What is JSON or wants to be: all of it, or from the last line on that opens an object."""
    if said.startswith("{") or _is_json(said):
        return said
    start = said.rfind("\n{")
    if start >= 0:
        return said[start + 1 :]
    return said if any(line.lstrip().startswith("{") for line in said.splitlines()) else None


def _crashed(done: Completed, said: str) -> Finding:
    return broken(f"It ended with {done.exit}: {_short(done.errors or said)}")


def _plain(score: float, said: str) -> Finding:
    return Finding(score=score, assertions=(Assertion(text=_short(said), passed=score > 0),))


def _scored(parsed: _Opinion, *, compat: bool) -> Finding:
    """AgentV cuts a score to 0 and 1; here 85 is taken for a mistake, not for the best."""
    hits = tuple(Assertion(text=text, passed=True) for text in parsed.hits)
    misses = tuple(Assertion(text=text, passed=False) for text in parsed.misses)
    every = (*parsed.assertions, *hits, *misses)
    score = parsed.score
    if score is None:
        if not every and not compat:
            return broken("It says nothing: neither `score` nor `assertions`.")
        score = share(every) if every else 0.0
    if not compat and not 0 <= score <= 1:
        return _beyond(score)
    return Finding(score=score, assertions=every, details=parsed.details)


def _beyond(score: float) -> Finding:
    return broken(f"It says {score:g}, and a score is from 0 to 1.")


def _short(text: str) -> str:
    return bounded(text, SHOWN)


def _parsed(said: str) -> _Opinion | str:
    """Or why it is none."""
    try:
        return msgspec.json.decode(said, type=_Opinion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)


def _is_json(said: str) -> bool:
    """NaN is not, but whoever prints it means a number."""
    try:
        json.loads(said)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _bare(said: str) -> float | None:
    """A number, or a yes or no."""
    try:
        return float(msgspec.json.decode(said, type=float | bool))
    except (msgspec.DecodeError, UnicodeError):
        return None
