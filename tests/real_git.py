"""A git repository for tests, by the real git, with nothing of the user's own settings."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from goent.domain.workspace import WorkspaceKind, WorkspaceRequest

HOME = {"HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
WHO = ("user.name=Somebody", "user.email=somebody@example.invalid")


@dataclass
class Repository:
    top: Path
    environ: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"], **HOME})

    def git(self, *arguments: str | bytes | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *(part for who in WHO for part in ("-c", who)), *arguments],
            cwd=cwd or self.top,
            env=dict(self.environ),
            check=False,
            capture_output=True,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return os.fsdecode(done.stdout).strip()

    def write(self, name: str | bytes, text: str | bytes = "text\n") -> Path:
        path = Path(os.fsdecode(os.fsencode(self.top) + b"/" + os.fsencode(name)))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def commit(self, message: str = "a commit") -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def state(self) -> tuple[str, str, str, dict[str, bytes]]:
        """All that a stranger must not touch: index, stashes and HEAD, refs of the user's, files."""
        git_dir = Path(self.git("rev-parse", "--absolute-git-dir"))
        files = {
            str(path.relative_to(self.top)): path.read_bytes()
            for path in sorted(self.top.rglob("*"))
            if path.is_file() and git_dir not in path.parents
        }
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        index = git_dir / "index"
        return (
            index.read_bytes().hex() if index.exists() else "",
            (git_dir / "HEAD").read_text() + (git_dir / "config").read_text(),
            "\n".join(ref for ref in refs if not ref.startswith("refs/heads/go-ent/")),
            files,
        )


def a_repository(top: Path, *, files: Mapping[str, str] | None = None) -> Repository:
    """With one commit, of `README.md` and the files."""
    top.mkdir(parents=True, exist_ok=True)
    repository = Repository(top)
    repository.git("init", "--quiet", "-b", "main")
    for name, text in {"README.md": "hello\n", **(files or {})}.items():
        repository.write(name, text)
    repository.commit("the first")
    return repository


class OrderFor(Protocol):
    """An order for a worktree of the test's repository, unless said otherwise."""

    def __call__(  # noqa: PLR0913 (as an order is)
        self,
        worker: str = "w-abcde",
        *,
        group: str = "solo",
        cwd: Path | None = None,
        kind: WorkspaceKind = "worktree",
        start: str | None = None,
        uncommitted: bool = False,
        carry: tuple[str, ...] = (),
    ) -> WorkspaceRequest: ...


def orders_for(top: Path) -> OrderFor:
    def order(  # noqa: PLR0913 (as an order is)
        worker: str = "w-abcde",
        *,
        group: str = "solo",
        cwd: Path | None = None,
        kind: WorkspaceKind = "worktree",
        start: str | None = None,
        uncommitted: bool = False,
        carry: tuple[str, ...] = (),
    ) -> WorkspaceRequest:
        return WorkspaceRequest(
            worker=worker,
            group=group,
            cwd=cwd or top,
            kind=kind,
            start=start,
            uncommitted=uncommitted,
            carry=carry,
        )

    return order
