"""Runs git so that neither the user's environment nor an untrusted repository steers it.

Nothing of the user's environment steers it: no pager, no editor, no prompt, no hook, no signing, no
`GIT_DIR` of whoever started us. Nor does a repository's own configuration run anything, unless the
repository is trusted: see `local_config`. The user's global configuration holds. Paths go in and come
out as bytes, for a name need not be text.
"""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import EnvironmentTrouble, GoentError, RequestError
from goent.domain.types import Value
from goent.git.repository_config import (
    LISTING,
    ConfigEntry,
    ConfigTexts,
    check_not_overridable,
    config_overrides,
    config_variables,
    has_includes,
    parse_listing,
    read_texts,
    users_texts,
)
from goent.proc.programs import ShortResult, run_short, safe_path

_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f]*")


def readable_path(path: bytes) -> str:
    r"""A path as text; a byte that is none is shown as `\xe9`."""
    return path.decode("utf-8", "backslashreplace")


def shell_quoted(path: bytes) -> str:
    """What a shell (bash, zsh, ksh) reads as just this path, on one line."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        text = "\0"
    if _PLAIN.fullmatch(text):
        return shlex.quote(text)
    return "$'" + "".join(map(_ansi, path)) + "'"


def _ansi(byte: int) -> str:
    char = chr(byte)
    if char in "\\'":
        return f"\\{char}"
    return char if " " <= char <= "~" else f"\\{byte:03o}"


NEEDED_VERSION: Final = (2, 38)  # `git merge-tree --write-tree`
TIMEOUT_S: Final = 120.0
FIXED_SETTINGS: Final = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "advice.detachedHead=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "submodule.recurse=false"),
)
# A remote whose address is a command.
NO_COMMANDS: Final = ("-c", "protocol.ext.allow=never")
MAX_KNOWN: Final = 256  # configurations that are remembered
# The user's own word on where their configuration is, and how they reach others.
USER_VARIABLES: Final = frozenset(
    {
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
    }
)
TRIES: Final = 8
PAUSE_S: Final = 0.05  # seconds before the second try; each further one waits as long again
# A git that is just making a worktree stops every other that looks through them, for a moment.
HALF_MADE_WORKTREE: Final = re.compile(r"failed to read .*/worktrees/")
FILTER_FAILED: Final = re.compile("(?:clean|smudge) filter '.*' failed")
DISK_FULL: Final = ("No space left on device", "Disk quota exceeded")
IDENTITY: Final = {"NAME": "go-ent", "EMAIL": "go-ent@localhost"}


class GitFailed(RequestError):
    """git said no; the message has its own words."""


class GitAnswer(Value, frozen=True, kw_only=True):
    """What a git that may say no said."""

    exit: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.output).strip()


IsTrusted = Callable[
    [Path], bool
]  # whether a repository may run its own programs, by its directory


def trust_none(repository: Path) -> bool:  # noqa: ARG001 (as `IsTrusted` is)
    """No repository runs its own programs."""
    return False


class ConfigCache:
    """What repositories' configurations say, by their text; for several `Git` to share."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[ConfigEntry, ...]] = {}

    def get(self, texts: tuple[bytes, ...]) -> tuple[ConfigEntry, ...] | None:
        return self._known.get(texts)

    def keep(self, texts: tuple[bytes, ...], entries: tuple[ConfigEntry, ...]) -> None:
        while len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[texts] = entries


class Git:
    """git, in one folder. `environ` is the user's; what would steer git is left out of it.

    `trusted` is asked for each command with the directory of its repository (`.git`, or a bare one;
    a linked checkout's is that of the repository it belongs to). Only if it says yes do filters, merge
    drivers, ssh commands and the like of that repository's own configuration run.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        *,
        git: str = "git",
        trusted: IsTrusted = trust_none,
        heard: ConfigCache | None = None,
    ) -> None:
        self.folder = folder
        self._program = git
        self._environ = _git_environment(environ)
        self._trusted = trusted
        self._config_cache = heard or ConfigCache()

    def at(self, folder: Path) -> "Git":
        """The same git in another folder."""
        return Git(
            folder,
            self._environ,
            git=self._program,
            trusted=self._trusted,
            heard=self._config_cache,
        )

    async def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> GitAnswer:
        """Whatever it says. Raises only if it cannot be started or does not end."""
        environ = {**self._environ, **(env or {})}
        texts = read_texts(self.folder, environ.get("GIT_DIR"))
        always = FIXED_SETTINGS
        if not (texts.home and self._trusted(texts.home.common)):
            always = (*FIXED_SETTINGS, *NO_COMMANDS)
            environ |= await self._config_overrides(texts, environ)
        return await self._run((*always, *arguments), environ, stdin=stdin, timeout=timeout)

    async def _config_overrides(
        self, texts: ConfigTexts, environ: Mapping[str, str]
    ) -> Mapping[str, str]:
        """What keeps git from hearing the repository; a process only where there is something to hear."""
        if texts.are_harmless:
            return {}
        entries = await self._entries(texts, environ)
        check_not_overridable(entries, texts.home, environ.get("GIT_WORK_TREE"))
        settings, more = config_overrides(entries, environ)
        return {**config_variables(settings), **more}

    async def _entries(
        self, texts: ConfigTexts, environ: Mapping[str, str]
    ) -> tuple[ConfigEntry, ...]:
        whole = (*texts.texts, *users_texts(environ))
        if known := self._config_cache.get(whole):
            return known
        listed = await self._run(LISTING, environ)
        if listed.exit:
            raise self.failure(listed, *LISTING)
        entries = parse_listing(listed.output)
        if not has_includes(entries):  # a file that is included may say something else next time
            self._config_cache.keep(whole, entries)
        return entries

    async def _run(
        self,
        arguments: Sequence[str | bytes],
        environ: Mapping[str, str],
        *,
        stdin: bytes = b"",
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> GitAnswer:
        command: Sequence[str | bytes] = (self._program, *arguments)
        said: ShortResult = await run_short(
            command, cwd=self.folder, env=environ, timeout=timeout, stdin=stdin
        )
        if said.exit is None:
            raise EnvironmentTrouble(
                f"`git {_command_text(arguments)}` in {str(self.folder)!r} did not end within {timeout:g} s"
            )
        return GitAnswer(exit=said.exit, output=said.output, errors=said.errors.strip())

    async def run_checked(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> GitAnswer:
        """What must succeed. Raises `GitFailed` with git's own words, or `EnvironmentTrouble`."""
        answer = await self.run(*arguments, stdin=stdin, env=env, timeout=timeout)
        for attempt in range(1, TRIES):
            if not (answer.exit and HALF_MADE_WORKTREE.search(answer.errors)):
                break
            await anyio.sleep(PAUSE_S * attempt)
            answer = await self.run(*arguments, stdin=stdin, env=env, timeout=timeout)
        if answer.exit:
            raise self.failure(answer, *arguments)
        return answer

    def failure(self, answer: GitAnswer, *arguments: str | bytes) -> GoentError:
        """What to raise for an answer that is a no."""
        words = answer.errors[-500:] or f"exit code {answer.exit}"
        told = f"`git {_command_text(arguments)}` in {str(self.folder)!r} failed: {words}"
        if FILTER_FAILED.search(words):
            told += (
                ". Filters of a repository's own configuration do not run where it is not trusted: "
                "trust it, or define the filter in your own ~/.gitconfig"
            )
        if any(sign in words for sign in DISK_FULL):
            return EnvironmentTrouble(f"{told}. Make room; `go-ent gc` lists workspaces")
        return GitFailed(told)

    async def check_version(self) -> None:
        """Raise if git is missing or too old, and say which version is needed."""
        needed = ".".join(map(str, NEEDED_VERSION))
        try:
            said = (await self.run_checked("version")).text
        except EnvironmentTrouble as error:
            raise EnvironmentTrouble(f"git {needed} or newer is needed: {error}") from None
        found = re.search(r"(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) < NEEDED_VERSION:
            raise EnvironmentTrouble(f"git {needed} or newer is needed, and this is {said!r}")


def _git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("GIT_") or name in USER_VARIABLES
    }
    if "PATH" in kept:  # for what git starts, in somebody's folder
        kept["PATH"] = safe_path(kept["PATH"])
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


def _command_text(arguments: Sequence[str | bytes]) -> str:
    return " ".join(os.fsdecode(each) for each in arguments)[:200]


async def read_objects(
    git: Git, names: Sequence[bytes], env: Mapping[str, str] | None = None
) -> list[bytes]:
    """Of files, by id or as `tree:path`; empty for what is not there, or is no file."""
    if not names:
        return []
    asked = b"".join(name + b"\0" for name in names)
    output = (await git.run_checked("cat-file", "--batch", "-z", stdin=asked, env=env)).output
    found: list[bytes] = []
    at = 0
    for name in names:
        missing = name + b" missing\n"
        if output.startswith(missing, at):
            found.append(b"")
            at += len(missing)
            continue
        end = output.index(b"\n", at)
        _, kind, size = output[at:end].split(b" ")
        content = output[end + 1 : end + 1 + int(size)]
        found.append(content if kind == b"blob" else b"")
        at = end + 1 + int(size) + 1
    return found
