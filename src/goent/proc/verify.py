"""Do the commands that prove a claim succeed?"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from goent.domain.settings import Limits
from goent.domain.types import Check
from goent.proc.run import run

TIME_LIMIT = Limits().verify_s
TAIL = 4000


class ShellVerifier:
    """Runs verify commands by `sh -c`, one after the other, all of them.

    `environ` gives their environment; whoever passes it has taken the keys out. A command that has
    not ended within `time_limit` seconds is ended, and so is what it left behind.
    """

    def __init__(
        self,
        environ: Callable[[], Mapping[str, str]],
        *,
        time_limit: Callable[[], float] = lambda: TIME_LIMIT,
    ) -> None:
        self._environ = environ
        self._time_limit = time_limit

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]:
        return tuple([await self._check(command, cwd) for command in commands])

    async def _check(self, command: str, cwd: Path) -> Check:
        limit = self._time_limit()
        done = await run(
            ["sh", "-c", f"exec 2>&1\n{command}"],
            cwd=cwd,
            env=self._environ(),
            timeout=limit,
            max_output=TAIL,
        )
        late = f"\nstill running after {limit:g} s: ended" if done.exit is None else ""
        return Check(command=command, exit=done.exit, tail=(done.output + late).strip())
