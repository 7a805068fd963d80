"""A repository in which several pieces of work begin at one commit."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from goent.domain.workspace import Conflict, WorkPiece
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging

# None: the file is gone.
Files = Mapping[str, str | bytes | None] | Mapping[bytes, str]
ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_DATE": "@1700000000 +0000",
}


class Repo:
    """A checkout, and what go-ent needs to merge in it."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "project"
        self.top.mkdir()
        self.root = folder / "scratch"
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@example.invalid")
        self.merging = GitMerging(Git(self.top, ENV), self.root)

    @property
    def repository(self) -> str:
        return str(self.top / ".git")

    def git(self, *arguments: str | bytes, stdin: bytes = b"") -> str:
        """What git says; the test fails if it says no."""
        said = subprocess.run(
            ["git", *arguments],
            cwd=self.top,
            env=ENV,
            input=stdin,
            capture_output=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr.decode(errors="replace")
        return os.fsdecode(said.stdout).strip()

    def write(self, files: Files) -> None:
        for name, content in files.items():
            path = self.top / os.fsdecode(name)
            if path.is_symlink() or path.is_file():
                path.unlink()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def commit(self, files: Files | None = None, message: str = "work") -> str:
        """All that is in the checkout now; the commit."""
        self.write(files or {})
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def begin(self, at: str) -> None:
        self.git("checkout", "-q", "--detach", at)

    def piece(self, task: str, base: str, files: Files | None = None) -> WorkPiece:
        """A task's work from the base on, as a commit on a branch of its own."""
        self.begin(base)
        commit = self.commit(files, f"work of {task}")
        self.git("branch", "-q", f"go-ent/s/{task}", commit)
        return WorkPiece(task=task, commit=commit)

    def done(self) -> None:
        """Back where the user was."""
        self.git("checkout", "-q", "main")

    def state(self) -> tuple[str, str, bytes]:
        """All that a user would notice."""
        index = (self.top / ".git" / "index").read_bytes()
        return self.git("status", "--porcelain"), self.git("for-each-ref"), index

    def objects(self) -> set[str]:
        return set(self.git("cat-file", "--batch-all-objects", "--batch-check").splitlines())

    def leftovers(self) -> list[Path]:
        """What merging left where it puts things for a moment."""
        places = [self.root, *Path("/dev/shm").glob(f"goent-{os.getuid()}-*")]
        mine = [each for place in places for each in place.glob(f"*-{os.getpid()}-*")]
        return [*mine, *self.root.glob("*")]

    def content(self, commit: str, path: str) -> str:
        return self.git("show", f"{commit}:{path}")


def kinds(conflicts: Sequence[Conflict]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(each.kind, each.path, each.tasks) for each in conflicts}


def the(kind: str, conflicts: Sequence[Conflict]) -> Conflict:
    """The only one of that kind."""
    (found,) = [each for each in conflicts if each.kind == kind]
    return found
