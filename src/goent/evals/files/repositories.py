"""Which repository does a workspace begin with, at which commit, and are both there?"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from goent.config.fields import Fields, Mention
from goent.domain.types import Value
from goent.evals.files.hooks import is_folder, seen_from
from goent.evals.files.texts import Source

ITSELF: Final = ("", ".", "./")
_ONE: Final = "one is supported, which is the workspace itself; clone others in a before_all hook, or use template"


class Origin(Value, frozen=True, kw_only=True):
    """A repository as git can clone it, and the commit that is asked for."""

    repository: str = ""
    ref: str = ""


def read_origin(fields: Fields, source: Source) -> Origin:
    """By `repository` and `ref`; or as AgentV lists it, under `repos`."""
    listed = fields.rows("repos", lambda inner: _listed(inner, source))
    if fields.one_of("repository", "repos") == "repos":
        if len(listed) != 1:
            fields.mistake("repos", _ONE)
        return listed[0] if listed else Origin()
    ref = fields.mention("ref")
    if ref and not fields.has("repository"):
        fields.mistake("ref", "says nothing without a repository")
    return _origin(fields, ("repository", "ref"), ref.name if ref else "", source)


def _listed(fields: Fields, source: Source) -> Origin:
    path = fields.text("path", "")
    if path not in ITSELF:
        fields.mistake("path", f"{path!r} is not supported; {_ONE}")
    if fields.has("sparse"):
        fields.mistake("sparse", "is not supported; the whole commit is checked out")
    if not fields.has("repo"):
        fields.mistake("repo", "is missing; name a folder, or an address as git takes it")
    commit, base = fields.text("commit", ""), fields.text("base_commit", "")
    if commit and base and commit != base:
        fields.mistake("base_commit", f"must be the same as commit, {commit!r}")
    back = fields.integer("ancestor", 0)
    ref = f"{commit or base or 'HEAD'}~{back}" if back else commit or base
    key = "ancestor" if back else "commit" if commit else "base_commit"
    return _origin(fields, ("repo", key), ref, source)


def _origin(fields: Fields, keys: tuple[str, str], ref: str, source: Source) -> Origin:
    """`keys` are those of the repository and of its commit."""
    mention = fields.mention(keys[0])
    repository = _address(fields, keys[0], mention) if mention else ""
    if ref.startswith("-"):
        fields.mistake(keys[1], f"{ref!r} is no name of a commit")
    elif repository and is_folder(Path(repository)):
        trouble = source.once(
            ("repository", repository, ref), lambda: _look_at(repository, ref, source.environ)
        )
        for key, words in trouble:
            fields.mistake(keys[1] if key == "ref" else keys[0], words)
    return Origin(repository=repository, ref=ref)


def _address(fields: Fields, key: str, mention: Mention) -> str:
    """A folder, seen from the file; or an address as git takes it."""
    path = seen_from(mention.place, mention.name)
    if is_folder(path):
        return str(path.resolve())
    if ":" in mention.name.partition("/")[0] and not mention.name.startswith("-"):
        return mention.name
    fields.mistake(key, f"{mention.name!r} is no address, and there is no folder {str(path)!r}")
    return ""


def _look_at(repository: str, ref: str, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What is wrong with a repository on this machine: `repository` or `ref`, and why."""
    import anyio  # noqa: PLC0415 (few suites clone anything)

    # Whoever reads files may be in the middle of a loop of events, and cannot wait in it.
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(anyio.run, _looked, Path(repository), ref, environ).result()


async def _looked(
    folder: Path, ref: str, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    from goent.domain.errors import EnvironmentTrouble, RequestError  # noqa: PLC0415 (the same)
    from goent.evals.workspaces.clones import NO_REPOSITORY  # noqa: PLC0415 (the same)
    from goent.git.command import Git  # noqa: PLC0415 (the same)
    from goent.git.repository import NoRepository, look  # noqa: PLC0415 (the same)

    git = Git(folder, environ)
    key = "repository"
    try:
        found = await look(git)
        if ref:
            key = "ref"
            await look(git, ref)
        elif not found.commit:
            return (("repository", f"{str(folder)!r} has no commit yet; make a first one"),)
    except NoRepository:
        return (("repository", NO_REPOSITORY.format(folder=str(folder))),)
    except RequestError as error:
        return ((key, str(error)),)
    except EnvironmentTrouble:  # no git: that is no mistake of the file
        return ()
    return ()
