"""Runs verify commands in a shell, confined to the checkout that they check."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from goent.domain.sandbox_port import CommandSandbox
from goent.domain.settings import LimitSettings
from goent.domain.types import Check
from goent.domain.verification import is_blank
from goent.proc.child_process import run_command

VERIFY_TIMEOUT_S = LimitSettings().verify_s


TAIL_CHARS = 4000


NOT_FOUND_EXIT = 127  # a shell's exit code for an unknown command


EMPTY_COMMAND_REASON = (
    "its variables are empty here, so it would check nothing and always pass: set them"
)


_VARIABLE = re.compile(r"\$(?P<brace>\{)?(?P<name>[A-Za-z_]\w*)(?(brace)\})", re.ASCII)


class ShellVerifier:
    """Runs verify commands by `sh -c`, one after the other, all of them.

    `environ` is their environment, without keys. A command that has not ended within `time_limit`
    seconds is ended, together with what it started.
    """

    def __init__(
        self,
        environ: Callable[[], Mapping[str, str]],
        sandbox: CommandSandbox,
        *,
        time_limit: Callable[[], float] = lambda: VERIFY_TIMEOUT_S,
    ) -> None:
        self._environ = environ
        self._sandbox = sandbox
        self._time_limit = time_limit

    async def verify(self, commands: Sequence[str], cwd: Path) -> tuple[Check, ...]:
        return tuple([await self._check(command, cwd) for command in commands])

    async def _check(self, command: str, cwd: Path) -> Check:
        limit, environ = self._time_limit(), self._environ()
        if is_blank(_VARIABLE.sub(lambda found: environ.get(found["name"], ""), command)):
            return Check(command=command, exit=NOT_FOUND_EXIT, tail=EMPTY_COMMAND_REASON)
        words = ["sh", "-c", f"exec 2>&1\n{command}"]
        async with self._sandbox.command(words, cwd=cwd, env=environ) as start:
            done = await run_command(
                start.command,
                cwd=cwd,
                env=start.env,
                timeout=limit,
                max_output=TAIL_CHARS,
                inner_mark=start.mark,
            )
        late = f"\nstill running after {limit:g} s: ended" if done.exit is None else ""
        said = (done.output + late or done.errors).strip()
        hint = start.explain(said) if done.exit else ""
        return Check(command=command, exit=done.exit, tail=f"{said}\n{hint}".strip())
