"""Runs git so that neither the user's environment nor an untrusted repository steers it.

There is no pager, editor, prompt, hook or signing, and no inherited `GIT_DIR`. A repository's own
configuration runs nothing unless the repository is trusted: see `repository_config`. The user's global
configuration applies. Paths go in and come out as bytes, because a name need not be text.
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
NO_COMMANDS: Final = ("-c", "protocol.ext.allow=never")  # no remote whose address is a command
MAX_KNOWN: Final = 256  # cached configurations
# The user's own choice of configuration and transport.
USER_VARIABLES: Final = frozenset(
    {
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM"),
        *("GIT_SSH", "GIT_SSH_COMMAND"),
    }
)
TRIES: Final = 8
PAUSE_S: Final = 0.05  # before the second try; grows by the same with each further one
# While one git adds a worktree, every other that lists them fails for a moment.
HALF_MADE_WORKTREE: Final = re.compile(r"failed to read .*/worktrees/")
FILTER_FAILED: Final = re.compile("(?:clean|smudge) filter '.*' failed")
DISK_FULL: Final = ("No space left on device", "Disk quota exceeded")
IDENTITY: Final = {"NAME": "go-ent", "EMAIL": "go-ent@localhost"}
IsTrusted = Callable[[Path], bool]  # whether the repository at a path may run its own programs
_PLAIN: Final = re.compile(r"[^\x00-\x1f\x7f]*")


class GitFailed(RequestError):
    """git failed; the message quotes it."""


class GitAnswer(Value, frozen=True, kw_only=True):
    """The result of a git command that may fail."""

    exit: int
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return os.fsdecode(self.output).strip()


def trust_none(repository: Path) -> bool:  # noqa: ARG001 (as `IsTrusted` is)
    """No repository runs its own programs."""
    return False


class ConfigCache:
    """Parsed configurations by their text; several `Git` objects share one."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[ConfigEntry, ...]] = {}

    def get(self, texts: tuple[bytes, ...]) -> tuple[ConfigEntry, ...] | None:
        return self._known.get(texts)

    def keep(self, texts: tuple[bytes, ...], entries: tuple[ConfigEntry, ...]) -> None:
        while len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[texts] = entries


class Git:
    """git in one folder. `environ` is the user's; variables that would steer git are removed.

    `trusted` is called for each command with the repository's directory (`.git` or a bare one; for a
    linked checkout, that of its repository). Filters, merge drivers, ssh commands and the like of the
    repository's own configuration run only if it returns true.
    """

    def __init__(
        self,
        folder: Path,
        environ: Mapping[str, str],
        *,
        git: str = "git",
        trusted: IsTrusted = trust_none,
        cache: ConfigCache | None = None,
    ) -> None:
        self.folder = folder
        self._program = git
        self._environ = _git_environment(environ)
        self._trusted = trusted
        self._config_cache = cache or ConfigCache()

    def at(self, folder: Path) -> "Git":
        """The same git in another folder."""
        return Git(
            folder,
            self._environ,
            git=self._program,
            trusted=self._trusted,
            cache=self._config_cache,
        )

    async def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109 (a git that hangs is an outcome)
    ) -> GitAnswer:
        """Run git, which may fail. Raises only if it cannot be started or does not end."""
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
        """Variables that override the repository's configuration, if that could run anything."""
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
        if not has_includes(entries):  # an included file may change at any time
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
        """Run git, which must succeed. Raises `GitFailed` or `EnvironmentTrouble` otherwise."""
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
        """The error to raise for a failed command."""
        words = answer.errors[-500:] or f"exit code {answer.exit}"
        message = f"`git {_command_text(arguments)}` in {str(self.folder)!r} failed: {words}"
        if FILTER_FAILED.search(words):
            message += (
                ". Filters of an untrusted repository's own configuration do not run: trust it, or "
                "define the filter in your own ~/.gitconfig"
            )
        if any(sign in words for sign in DISK_FULL):
            return EnvironmentTrouble(f"{message}. Free some space; `go-ent gc` lists workspaces")
        return GitFailed(message)

    async def check_version(self) -> None:
        """Raise if git is missing or too old."""
        needed = ".".join(map(str, NEEDED_VERSION))
        try:
            said = (await self.run_checked("version")).text
        except EnvironmentTrouble as error:
            raise EnvironmentTrouble(f"git {needed} or newer is needed: {error}") from None
        found = re.search(r"(\d+)\.(\d+)", said)
        if found and (int(found[1]), int(found[2])) < NEEDED_VERSION:
            raise EnvironmentTrouble(f"git {needed} or newer is needed, but this is {said!r}")


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
    """The contents of files, by id or as `tree:path`; empty for anything missing or not a file."""
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


def readable_path(path: bytes) -> str:
    r"""A path as text; bytes that are not UTF-8 are shown as `\xe9`."""
    return path.decode("utf-8", "backslashreplace")


def shell_quoted(path: bytes) -> str:
    """The path quoted for a shell (bash, zsh, ksh), on one line."""
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
