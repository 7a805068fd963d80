"""How is git asked, so that it answers for go-ent alone?

Nothing of the user's environment steers it: no pager, no editor, no prompt, no hook, no signing, no
`GIT_DIR` of whoever started us. Paths go in and come out as bytes, for a name need not be text.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import EnvironmentTrouble, GoentError, RequestError
from goent.domain.types import Value
from goent.proc.short import Said, short

NEEDED: Final = (2, 38)  # `git merge-tree --write-tree`
TIME_LIMIT: Final = 120.0
ALWAYS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "core.quotePath=false"),
)
TRIES: Final = 8
PAUSE: Final = 0.05  # seconds before the second try; each further one waits as long again
# A git that is just making a worktree stops every other that looks through them, for a moment.
HALF_MADE: Final = re.compile(r"failed to read .*/worktrees/")
FULL: Final = ("No space left on device", "Disk quota exceeded")
IDENTITY: Final = {"NAME": "go-ent", "EMAIL": "go-ent@localhost"}


class GitFailed(RequestError):
    """git said no; the message has its own words."""


class Answer(Value, frozen=True, kw_only=True):
    """What a git that may say no said."""

    exit: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.output).strip()


class Git:
    """git, in one folder. `environ` is the user's; what would steer git is left out of it."""

    def __init__(self, folder: Path, environ: Mapping[str, str], *, git: str = "git") -> None:
        self.folder = folder
        self._program = git
        self._environ = _quiet(environ)

    def at(self, folder: Path) -> "Git":
        """The same git in another folder."""
        return Git(folder, self._environ, git=self._program)

    async def ask(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIME_LIMIT,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> Answer:
        """Whatever it says. Raises only if it cannot be started or does not end."""
        command: Sequence[str | bytes] = (self._program, *ALWAYS, *arguments)
        environ = {**self._environ, **(env or {})}
        said: Said = await short(
            command, cwd=self.folder, env=environ, timeout=timeout, stdin=stdin
        )
        if said.exit is None:
            raise EnvironmentTrouble(
                f"`git {_shown(arguments)}` in {str(self.folder)!r} did not end within {timeout:g} s"
            )
        return Answer(exit=said.exit, output=said.output, errors=said.errors.strip())

    async def do(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIME_LIMIT,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> Answer:
        """What must succeed. Raises `GitFailed` with git's own words, or `EnvironmentTrouble`."""
        answer = await self.ask(*arguments, stdin=stdin, env=env, timeout=timeout)
        for attempt in range(1, TRIES):
            if not (answer.exit and HALF_MADE.search(answer.errors)):
                break
            await anyio.sleep(PAUSE * attempt)
            answer = await self.ask(*arguments, stdin=stdin, env=env, timeout=timeout)
        if answer.exit:
            raise self.failure(answer, *arguments)
        return answer

    def failure(self, answer: Answer, *arguments: str | bytes) -> GoentError:
        """What to raise for an answer that is a no."""
        words = answer.errors[-500:] or f"exit code {answer.exit}"
        told = f"`git {_shown(arguments)}` in {str(self.folder)!r} failed: {words}"
        if any(sign in words for sign in FULL):
            return EnvironmentTrouble(f"{told}. Make room; `go-ent gc` lists workspaces")
        return GitFailed(told)

    async def check_version(self) -> None:
        """Raise if git is missing or too old, and say which version is needed."""
        needed = ".".join(map(str, NEEDED))
        try:
            said = (await self.do("version")).text
        except EnvironmentTrouble as error:
            raise EnvironmentTrouble(f"git {needed} or newer is needed: {error}") from None
        found = re.search(r"(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) < NEEDED:
            raise EnvironmentTrouble(f"git {needed} or newer is needed, and this is {said!r}")


def _quiet(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
    author = {
        f"GIT_{role}_{what}": environ.get(f"GIT_{role}_{what}", value)
        for role in ("AUTHOR", "COMMITTER")
        for what, value in IDENTITY.items()
    }
    return {
        **kept,
        **author,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "true",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }


def _shown(arguments: Sequence[str | bytes]) -> str:
    return " ".join(os.fsdecode(each) for each in arguments)[:200]
