"""What is a run made of? Every file that decides what is asked, and how it is graded."""

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from goent.evals.graders.grading import every_grader
from goent.evals.graders.llm import prompt_file
from goent.evals.graders.values import NO_KEYS, is_array, is_object
from goent.evals.suites import Case, GraderSpec, TargetSpec, WorkspaceSpec
from goent.evals.targets.settings import home_of
from goent.plain_files import LARGE, read_plain


def materials(
    read: Iterable[Path], cases: Iterable[Case], specs: Iterable[TargetSpec]
) -> tuple[Path, ...]:
    """What was `read`, and what it names: files of messages, prompts, scripts, recordings, folders of workspaces."""
    found = [
        *read,
        *(path for case in cases for path in _of_case(case)),
        *(path for spec in specs for path in _of_target(spec)),
    ]
    return tuple(dict.fromkeys(path.resolve() for path in found))


def spelt(path: Path) -> str:
    """As JSON can have it: a name may be in another encoding than UTF-8."""
    return os.fsencode(path).decode(errors="replace")


def digests(paths: Iterable[Path], run: Path) -> Mapping[str, str]:
    """What files and folders hold now, in a few letters each; of what cannot be read there are none.

    What a run leaves in its own folder, and others in theirs, is no part of it; nor is what git does.
    """
    own = run.resolve()
    return {spelt(path): _digest(path, own) for path in paths}


def _of_case(case: Case) -> Iterator[Path]:
    for said in case.everything_said:
        yield from said.files
    yield from case.guidelines
    for _, spec in every_grader(case.every_grader):
        yield from _of_grader(spec, case)
    if case.workspace:
        yield from _of_workspace(case.workspace)


def _of_grader(spec: GraderSpec, case: Case) -> Iterator[Path]:
    """Also of a composite whose members become one by a script or a judge."""
    aggregator = spec.settings.get("aggregator")
    for settings in (spec.settings, aggregator if is_object(aggregator) else NO_KEYS):
        prompt, command = settings.get("prompt"), settings.get("command")
        if isinstance(prompt, str) and (path := prompt_file(spec, case, prompt)):
            yield path
        if is_array(command):
            here = Path(case.place.file).parent / str(settings.get("cwd", "."))
            yield from _named([str(word) for word in command], here)


def _of_workspace(workspace: WorkspaceSpec) -> Iterator[Path]:
    if workspace.template:
        yield workspace.template
    hooks = (
        *(workspace.before_all, workspace.before_each),
        *(workspace.after_each, workspace.after_all),
    )
    for hook in hooks:
        if hook and hook.cwd:
            yield from _named(hook.command, hook.cwd)


def _of_target(spec: TargetSpec) -> Iterator[Path]:
    if spec.kind == "replay":
        yield home_of(spec) / str(spec.settings.get("fixtures"))


def _named(command: Iterable[str], here: Path) -> Iterator[Path]:
    """Files among the words of a command, those of a line for the shell included."""
    for words in command:
        try:
            each = {words, *shlex.split(words)}
        except ValueError:  # a quote that nothing closes
            each = {words}
        for word in each:
            with suppress(OSError, ValueError):  # a word need not be a name
                if (here / word).is_file():
                    yield here / word


def _inside(folder: Path, run: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        inside = Path(here)
        apart = (run, inside / ".git", *([inside / "evals"] if inside.name == ".goent" else ()))
        folders[:] = [name for name in folders if inside / name not in apart]
        yield from (inside / name for name in (*folders, *files) if inside / name not in apart)


def _digest(path: Path, run: Path) -> str:
    whole = hashlib.sha256()
    try:
        if not path.is_dir():
            whole.update(read_plain(path, LARGE))
        else:
            for each in sorted(_inside(path, run)):
                whole.update(os.fsencode(each.relative_to(path)) + b"\0")
                if each.is_symlink():
                    whole.update(os.fsencode(each.readlink()))
                elif each.is_file():
                    whole.update(hashlib.sha256(read_plain(each, LARGE)).digest())
    except OSError:
        return ""
    return whole.hexdigest()[:16]
