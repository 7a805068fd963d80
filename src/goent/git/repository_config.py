"""Overrides whatever a repository's own configuration could make git run, or shows it for trust.

A repository brings a `.git/config`, and its `.gitattributes` select filters and merge drivers that are
defined there. For an untrusted repository, each such setting is overridden by name: with the user's
own value from their global or the system's configuration, otherwise with one that runs nothing. git
lists the settings, but only if the configuration contains such a word at all, and once per state of
the configuration.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.settings import Act, Material, content_digest, make_act
from goent.domain.types import Value
from goent.system.plain_files import NotPlainFile, read_plain

MAX_BYTES: Final = 4_000_000
LISTING: Final = ("config", "--list", "--show-scope", "--show-origin", "-z")
OWN_SCOPES: Final = frozenset({"system", "global"})  # the user's or the machine's
LOCAL_SCOPES: Final = frozenset({"local", "worktree"})  # the repository's
TEXT_MERGE_LABEL: Final = "ours (merged as text)"
_AS_TEXT: Final = f"git merge-file --quiet --zdiff3 --marker-size=%L -L '{TEXT_MERGE_LABEL}' -L base -L theirs %A %O %B"
# By section and name, without the subsection: a value that runs nothing, or only git itself.
HARMLESS_VALUES: Final[Mapping[tuple[str, str], str]] = {
    ("branch", "mergeoptions"): "",
    ("core", "alternaterefscommand"): "true",
    ("core", "askpass"): "",
    ("core", "editor"): "true",
    ("core", "fsmonitor"): "false",
    ("core", "hookspath"): os.devnull,
    ("core", "pager"): "cat",
    ("core", "sshcommand"): "ssh",
    ("core", "virtualfilesystem"): "",
    ("diff", "command"): "true",
    ("diff", "external"): "true",
    ("diff", "textconv"): "cat",
    ("filter", "clean"): "",
    ("filter", "process"): "",
    ("filter", "smudge"): "",
    ("gc", "recentobjectshook"): "true",
    ("gpg", "defaultkeycommand"): "true",
    ("gpg", "program"): "gpg",
    ("hook", "command"): "true",
    ("http", "savecookies"): "false",
    ("interactive", "difffilter"): "cat",
    ("lfs", "clean"): "cat",
    ("lfs", "path"): "false",
    ("lfs", "smudge"): "cat",
    ("lfs", "standalonetransferagent"): "",
    ("merge", "driver"): _AS_TEXT,
    ("protocol", "allow"): "user",
    ("remote", "vcs"): "",
    ("sequence", "editor"): "true",
    ("ssh", "variant"): "auto",
    ("submodule", "update"): "checkout",
    ("tar", "command"): "cat",
    ("trailer", "cmd"): "true",
    ("trailer", "command"): "true",
}
# The same, for complete keys.
HARMLESS_BY_KEY: Final[Mapping[str, str]] = {
    "gpg.ssh.program": "ssh-keygen",
    "gpg.x509.program": "gpgsm",
    "merge.binary.driver": "false",
    "merge.union.driver": "git merge-file --quiet --union %A %O %B",
    "protocol.ext.allow": "never",
}
# Files that git reads instead of the user's own.
FILE_SETTINGS: Final[Mapping[str, str]] = {
    "core.attributesfile": "attributes",
    "core.excludesfile": "ignore",
}
# git uses the first value of these, so they cannot be overridden. They run on this machine only if the
# remote repository is on it.
REMOTE_PROGRAMS: Final = frozenset({("remote", "receivepack"), ("remote", "uploadpack")})
WORKTREE: Final = "core.worktree"
GIT_PROXY: Final = "core.gitproxy"
_NAMES: Final = (
    *(name for _, name in (*HARMLESS_VALUES, *REMOTE_PROGRAMS)),
    *(key.removeprefix("core.") for key in (*FILE_SETTINGS, WORKTREE, GIT_PROXY)),
    *("helper", "path"),  # of credentials; of files that are included
)
# Names appear in the file literally, except for upper and lower case.
_WORD: Final = re.compile(
    rb"(?<![a-z0-9-])(?:" + "|".join(sorted(set(_NAMES))).encode() + rb")(?![a-z0-9-])"
)
_CONTINUED: Final = re.compile(rb"\\\r?\n")
MAX_INCLUDED: Final = 50
# A partial clone: git fetches missing objects by itself, even for a log.
_PARTIAL: Final = re.compile(rb"promisor|partialclone")
# These can make a fetch run a program.
_FETCHES: Final = re.compile(
    rb"sshcommand|gitproxy|askpass|alternaterefscommand|variant|uploadpack|vcs|helper|allow"
)
_INCLUDED: Final = re.compile(rb"\bpath\s*=\s*(.+)", re.IGNORECASE)


class ConfigEntry(Value, frozen=True, kw_only=True):
    """A setting in git's listing; section and name are in lower case."""

    scope: str
    origin: str
    key: str
    value: str

    @property
    def kind(self) -> tuple[str, str]:
        """Its section and its name."""
        return _kind(self.key)


class RepositoryHome(Value, frozen=True, kw_only=True):
    """A repository's own directory, the one shared by its linked checkouts, and the checkout."""

    git_dir: Path
    common: Path
    top: Path | None


class ConfigTexts(Value, frozen=True, kw_only=True):
    """The current configuration files that may apply in a folder."""

    home: RepositoryHome | None
    texts: tuple[bytes, ...]

    @property
    def are_harmless(self) -> bool:
        """Whether nothing in them could run anything."""
        return not any(_WORD.search(text.lower()) for text in self.texts)


def active_lines(text: bytes) -> tuple[tuple[str, str], ...]:
    """The lines of a configuration that could run something, with the setting's name.

    Lines that are continued with a backslash are joined first.
    """
    lines = (line.strip() for line in _CONTINUED.sub(b" ", text).splitlines())
    found = ((line, _WORD.search(line.lower())) for line in lines)
    return tuple((line.decode(errors="replace"), word[0].decode()) for line, word in found if word)


def read_texts(folder: Path, git_dir: str | None) -> ConfigTexts:
    """The configurations of every repository that git could find from the folder, or of `git_dir`.

    Raises a `RequestError` for a configuration that is not a regular file.
    """
    homes = [_home(Path(git_dir), None)] if git_dir else list(homes_around(folder))
    paths = dict.fromkeys(
        path
        for home in homes
        for path in (home.common / "config", home.git_dir / "config.worktree")
    )
    return ConfigTexts(home=homes[0] if homes else None, texts=tuple(map(_config_text, paths)))


def users_texts(environ: Mapping[str, str]) -> tuple[bytes, ...]:
    """The user's own current configuration, without included files."""
    home = environ.get("HOME", "")
    other = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    given = environ.get("GIT_CONFIG_GLOBAL")
    paths = (given,) if given is not None else (f"{home}/.gitconfig", f"{other}/git/config")
    return tuple(_text_or_empty(Path(path)) for path in paths)


def parse_listing(output: bytes) -> tuple[ConfigEntry, ...]:
    """Parse the output of `LISTING`."""
    fields = os.fsdecode(output).split("\0")
    entries = zip(fields[0::3], fields[1::3], fields[2::3], strict=False)
    return tuple(
        ConfigEntry(scope=scope, origin=origin, key=key, value=value if equals else "true")
        for scope, origin, said in entries
        for key, equals, value in [said.partition("\n")]
    )


def config_overrides(
    entries: Sequence[ConfigEntry], environ: Mapping[str, str]
) -> tuple[tuple[tuple[str, str], ...], Mapping[str, str]]:
    """The settings and variables that make the user's configuration win over the repository's."""
    own = {entry.key: entry.value for entry in entries if entry.scope in OWN_SCOPES}
    local = dict.fromkeys(entry.key for entry in entries if entry.scope in LOCAL_SCOPES)
    settings = [
        (key, own.get(key, harmless))
        for key in local
        if (harmless := _harmless_value(key, environ)) is not None
    ]
    if any(_is_helper(key) for key in local):
        helpers = (e for e in entries if e.scope in OWN_SCOPES and _is_helper(e.key))
        settings += [("credential.helper", ""), *((each.key, each.value) for each in helpers)]
    if any(_kind(key) in REMOTE_PROGRAMS for key in local):
        settings.append(("protocol.file.allow", "never"))
    variables = {"GIT_PROXY_COMMAND": ""} if GIT_PROXY in local else {}
    return tuple(settings), variables


def config_variables(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings as environment variables for git."""
    pairs = list(settings)
    named = chain.from_iterable(
        ((f"GIT_CONFIG_KEY_{n}", key), (f"GIT_CONFIG_VALUE_{n}", value))
        for n, (key, value) in enumerate(pairs)
    )
    return {"GIT_CONFIG_COUNT": str(len(pairs)), **dict(named)} if pairs else {}


def has_includes(entries: Iterable[ConfigEntry]) -> bool:
    """Whether the repository's configuration includes other files."""
    return any(e.scope in LOCAL_SCOPES and e.kind == ("include", "path") for e in entries)


def check_not_overridable(
    entries: Iterable[ConfigEntry], home: RepositoryHome | None, work_tree: str | None
) -> None:
    """Raise a `RequestError` for settings that cannot be overridden."""
    for entry in entries:
        if entry.scope not in LOCAL_SCOPES:
            continue
        where = home.common if home else entry.origin
        if entry.kind[0] == "includeif":
            raise RequestError(
                f"the configuration of the git repository {str(where)!r} has {entry.key!r}, which may "
                "change at any moment, and the repository is not trusted: move the setting to your "
                "own ~/.gitconfig, or trust the repository"
            )
        # For a linked checkout, git uses only its own value.
        shared = entry.scope == "local" and home and home.git_dir != home.common
        if entry.key == WORKTREE and home and not work_tree and not shared:
            _check_worktree(entry.value, home)


def _check_worktree(value: str, home: RepositoryHome) -> None:
    """Accept a submodule, whose checkout refers back to it; anything else redirects git."""
    named = (home.git_dir / value).resolve()
    if home.top and named == home.top:
        return
    back = _git_dir_at(named / ".git")
    if not home.top and back and back.resolve() == home.git_dir:
        return
    raise RequestError(
        f"the git repository {str(home.git_dir)!r} says that its files are in {str(named)!r} "
        "(core.worktree), where they are not, and it is not trusted: run "
        f"`git --git-dir={home.git_dir} config --unset core.worktree`, or trust the repository"
    )


def _harmless_value(key: str, environ: Mapping[str, str]) -> str | None:
    """The override for a setting; None if it is harmless."""
    if key in HARMLESS_BY_KEY:
        return HARMLESS_BY_KEY[key]
    if name := FILE_SETTINGS.get(key):
        given = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
        return f"{given}/git/{name}"
    return HARMLESS_VALUES.get(_kind(key))


def _kind(key: str) -> tuple[str, str]:
    return key.partition(".")[0], key.rpartition(".")[2]


def _is_helper(key: str) -> bool:
    return key.startswith("credential.") and key.endswith(".helper")


def homes_around(folder: Path) -> Iterator[RepositoryHome]:
    """The repositories around a folder, nearest first; possibly more than git would use."""
    here = folder.resolve()
    for each in (here, *here.parents):
        inner = each / ".git"
        if (led := _git_dir_at(inner)) and os.path.lexists(led / "HEAD"):
            yield _home(led, each)
        if os.path.lexists(each / "HEAD") and os.path.lexists(each / "config"):
            yield _home(each, None)


def _git_dir_at(path: Path) -> Path | None:
    """The git directory at the path, or the one that a file there refers to."""
    if path.is_dir():
        return path
    try:
        said = read_plain(path, MAX_BYTES)
    except OSError:
        return None
    return path.parent / os.fsdecode(said.removeprefix(b"gitdir:").strip())


def _home(git_dir: Path, top: Path | None) -> RepositoryHome:
    own = git_dir.resolve()
    try:
        common = own / os.fsdecode(read_plain(own / "commondir", MAX_BYTES).strip())
    except OSError:
        common = own
    return RepositoryHome(git_dir=own, common=common.resolve(), top=top)


def _config_text(path: Path) -> bytes:
    try:
        return read_plain(path, MAX_BYTES)
    except NotPlainFile as error:
        raise RequestError(f"git's configuration {error}: put a file there") from None
    except OSError:
        return b""


def _text_or_empty(path: Path) -> bytes:
    with suppress(OSError):
        return read_plain(path, MAX_BYTES)
    return b""


def git_acts(*folders: Path) -> tuple[Act, ...]:
    """What the repositories around the folders could run; empty if nothing."""
    homes = (read_texts(folder, None).home for folder in folders)
    commons = dict.fromkeys(home.common for home in homes if home)
    return tuple(found for common in commons for found in repository_acts(common))


def fetch_acts(folder: Path) -> tuple[Act, ...]:
    """The acts of repositories around a folder in which any git command could fetch by a program.

    go-ent overrides this for its own git, but cannot for other programs' git.
    """
    commons = dict.fromkeys(
        home.common
        for home in homes_around(folder)
        for whole in [b"\n".join(_with_included(home)).lower()]
        if _PARTIAL.search(whole) and _FETCHES.search(whole)
    )
    return tuple(found for common in commons for found in repository_acts(common))


def repository_acts(common: Path) -> tuple[Act, ...]:
    """What a repository could run, by the directory that its checkouts share."""
    paths = (
        *(common / "config", common / "config.worktree"),
        *sorted(common.glob("worktrees/*/config.worktree")),
    )
    texts = {path: text for path in paths if (text := _read_config(path))}
    lines = [line for text in texts.values() for line in active_lines(text)]
    if not lines:
        return ()
    materials = [
        Material(name=str(path.relative_to(common)), digest=content_digest(text))
        for path, text in texts.items()
    ]
    says = f"git runs or follows its settings: {'; '.join(line for line, _ in lines)}"
    if any(word == "path" for _, word in lines):  # an included file may change at any time
        says = f"{says}. It includes other files, so go-ent's git ignores it in any case"
        return (Act(file=str(common / "config"), key="", kind="git", says=says, digest=""),)
    return (make_act(file=str(common / "config"), kind="git", says=says, materials=materials),)


def trust_check(allowed: Callable[[Act], bool]) -> Callable[[Path], bool]:
    """A check for `Git` of whether a repository may run its own programs."""

    def is_trusted(common: Path) -> bool:
        acts = repository_acts(common)
        return bool(acts) and all(map(allowed, acts))

    return is_trusted


def _with_included(home: RepositoryHome) -> Iterator[bytes]:
    """The repository's configuration files, and the files that they may include."""
    waiting, seen = [home.common / "config", home.git_dir / "config.worktree"], set[str]()
    while waiting and len(seen) < MAX_INCLUDED:
        path = waiting.pop()
        if (real := os.path.realpath(path)) in seen:
            continue
        seen.add(real)
        text = _read_config(path)
        yield text
        for value in _INCLUDED.findall(text):
            name = os.fsdecode(re.sub(rb'["\\]', b"", value).strip())
            waiting.append(path.parent / os.path.expanduser(name))  # noqa: PTH111 (a Path raises without a home)


def _read_config(path: Path) -> bytes:
    try:
        return read_plain(path, MAX_BYTES)
    except OSError:
        return b""
