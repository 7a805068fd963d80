"""A tool call that a worker's program wants to make, and whether it may: the guard's words."""

from collections.abc import Mapping
from typing import Protocol

from goent.domain.types import Value


class GuardedCall(Value, frozen=True, kw_only=True):
    """One call, before it runs. `owner` is the worker's own session, `session` perhaps a subagent's.

    `resumes` is whose session the call goes on with, if it is to go on with one.
    `worktree` is the top of the checkout, as the program sees it; `/` where there is none.
    """

    owner: str
    session: str
    call: str
    tool: str
    directory: str
    worktree: str = ""
    resumes: str = ""
    args: Mapping[str, object] = {}

    @property
    def is_own(self) -> bool:
        return self.session == self.owner


class Verdict(Value, frozen=True, kw_only=True):
    """May it run? If not, `message` is what the model is told."""

    allow: bool
    message: str = ""


class ToolGuard(Protocol):
    """Whoever decides on the calls of one process."""

    @property
    def in_force(self) -> bool:
        """Whether the process may ask a model: one whose tools would run unasked may not."""
        ...

    def loaded(self, directory: str) -> None:
        """The guard inside the process is in force in this directory."""
        ...

    async def judge(self, call: GuardedCall) -> Verdict:
        """May take as long as a person needs to answer."""
        ...

    def shell(self, session: str) -> Mapping[str, str]:
        """Variables for a command of a worker's session; without them it is not started."""
        ...

    def hint(self, session: str, output: str) -> str:
        """What to say after the words of a command that failed; nothing if the sandbox had no part."""
        ...
