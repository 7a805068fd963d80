"""The demo's second act: a swarm of four, a conflict, a failure, a retry, and what is merged."""

from pathlib import Path

from goent.domain.swarms import (
    SwarmMerged,
    SwarmMergeRequest,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmStatus,
)
from goent.domain.types import Value
from goent.frontends.cli.client import Daemon
from goent.frontends.cli.screen import say
from goent.frontends.cli.swarm.merging import show_merged
from goent.frontends.cli.swarm.summary import show_summary
from goent.frontends.cli.swarm.watching import watcher
from goent.frontends.cli.swarm.words import read_task_file

TASKS = """\
swarm: tidy-up
tasks:
  - {id: accents, provider: moonshotai/kimi-k2.6, prompt: "Let slug keep accents."}
  - {id: separator, provider: zai/glm-4.7, prompt: "Give slug a separator as a parameter."}
  - {id: cli, provider: deepseek/deepseek-flash, prompt: "Write cli.py, a command line for slug.",
     verify: [test $(python3 cli.py Hello World) = hello-world]}
  - {id: licence, provider: moonshotai/kimi-k2.6, prompt: "Add the MIT licence.",
     verify: [grep -q MIT LICENSE]}
"""
FAILS, ELSEWHERE = "licence", "deepseek/deepseek-flash"
COLLIDING = {"accents", "separator"}


class Together(Value, frozen=True, kw_only=True):
    """What came of the swarm."""

    result: SwarmResult
    merged: SwarmMerged

    @property
    def worked(self) -> bool:
        """All done in the end, the planted conflict found, and the rest on the branch."""
        done = all(task.state == "completed" for task in self.result.tasks)
        found = {t for c in self.result.conflicts if c.kind == "hunk_conflict" for t in c.tasks}
        return done and found == COLLIDING and len(self.merged.merged) == len(self.result.tasks) - 1


def play_together(through: Daemon, project: Path, *, silent: bool) -> Together:
    """Hand over the tasks, retry the one that fails, and merge what goes together."""
    file = project / ".goent" / "tasks.yaml"
    file.write_text(TASKS)
    if not silent:
        say("\nNow a swarm: four workers on three models, each in a git worktree of its own.")
        say(f"go-ent swarm {file.relative_to(project)}\n")
    begun = through.call("swarm_spawn", read_task_file(str(file)), SwarmStatus)
    _watch(through, begun.swarm_id, silent=silent)
    _show(through, begun.swarm_id, silent=silent)
    if not silent:
        say(f"\nIt said that it was done, and was refuted. Another model tries: {ELSEWHERE}")
        say(f"go-ent swarm retry {begun.swarm_id} {FAILS} --provider {ELSEWHERE}\n")
    retry = SwarmRetryRequest(swarm_id=begun.swarm_id, tasks=(FAILS,), provider=ELSEWHERE)
    through.call("swarm_retry", retry, SwarmStatus)
    _watch(through, begun.swarm_id, silent=silent)
    result = _result(through, begun.swarm_id)
    if not silent:
        say(f"\ngo-ent swarm merge {begun.swarm_id}\n")
    merge = SwarmMergeRequest(swarm_id=begun.swarm_id)
    merged = through.call("swarm_merge", merge, SwarmMerged)
    if not silent:
        show_merged(merged)
    return Together(result=result, merged=merged)


def _watch(through: Daemon, swarm: str, *, silent: bool) -> None:
    with watcher(through, swarm, silent=silent, owner=True) as watching:
        watching.watch(swarm)
    if watching.interrupted:
        raise KeyboardInterrupt


def _show(through: Daemon, swarm: str, *, silent: bool) -> None:
    if not silent:
        show_summary(_result(through, swarm))


def _result(through: Daemon, swarm: str) -> SwarmResult:
    return through.call("swarm_result", SwarmResultRequest(swarm_id=swarm, whole=True), SwarmResult)
