"""What do two hundred trivial cases cost, beside AgentV? The same suite, targets and commands.

A case is a `cat` of a recorded answer, so what is counted is the harness: it reads the suite, starts
a command for each case, grades the answer and keeps it. AgentV is installed once, by npm.
"""

import json
import shlex
from pathlib import Path

import anyio
from bench.counted import counted, median
from bench.installing import INSTALLED, NotInstalled, install
from bench.place import GO_ENT, Place
from bench.table import Row
from bench.tree import Bill, Order
from bench.worktrees import compared

VERSION = "4.42.4"
HOME = INSTALLED / f"agentv-{VERSION}"
CASES = 200
WORKERS = 4
TIMES = 3
SECONDS = 240.0
TARGETS = {"CPU": 0.4, "memory": 0.6}


async def run(place: Place) -> list[Row]:
    folder = place.project.parent / "eval-cli"
    _write_suite(folder)
    what = f"{CASES} `cli` cases, {WORKERS} at once"
    try:
        await anyio.to_thread.run_sync(_install)
    except NotInstalled as error:
        ours = await counted(_our_order(place, folder, "ours"))
        why = f"AgentV {VERSION} could not be installed: {error}"
        return [Row(measure=f"{what}, CPU ({why})", unit="s", ours=ours.cpu)]
    mine: list[Bill] = []
    theirs: list[Bill] = []
    for number in range(TIMES):
        mine.append(await counted(_our_order(place, folder, f"ours-{number}")))
        theirs.append(await counted(_their_order(place, folder, f"theirs-{number}")))
    return compared(what, median(mine), median(theirs), f"AgentV {VERSION}", TARGETS)


def _install() -> None:
    package = f"agentv@{VERSION}"
    quietly = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional")
    install(f"AgentV {VERSION}", HOME, [["npm", "install", "--prefix", ".", *quietly, package]])


def _write_suite(folder: Path) -> None:
    """As AgentV has them; go-ent reads the same files."""
    (folder / ".agentv").mkdir(parents=True)
    answer = folder / "answer.json"
    answer.write_text(json.dumps({"text": "The sky is blue."}))
    command = f"cat {shlex.quote(str(answer))} > {{OUTPUT_FILE}}"
    target = {"name": "fixture", "provider": "cli", "command": command, "workers": WORKERS}
    (folder / ".agentv" / "targets.yaml").write_text(json.dumps({"targets": [target]}))
    tests = [
        {
            "id": f"case-{number}",
            "criteria": "Says the colour",
            "input": "What colour is the sky?",
            "assertions": [{"type": "contains", "value": "blue"}],
        }
        for number in range(CASES)
    ]
    suite = {"description": "trivial", "execution": {"target": "fixture"}, "tests": tests}
    (folder / "suite.eval.yaml").write_text(json.dumps(suite, indent=1))


def _our_order(place: Place, folder: Path, out: str) -> Order:
    command = (*GO_ENT, "eval", "run", "suite.eval.yaml", "--workers", str(WORKERS), "--out", out)
    return _order(command, folder, place.env)


def _their_order(place: Place, folder: Path, out: str) -> Order:
    agentv = str(HOME / "node_modules" / ".bin" / "agentv")
    options = ("--workers", str(WORKERS), "--max-retries", "0", "--output", out)
    alone = {"AGENTV_HOME": str(folder / "agentv"), "AGENTV_NO_UPDATE_CHECK": "1"}
    env = {**place.peer_env, "PWD": str(folder), **alone}
    return _order((agentv, "eval", "suite.eval.yaml", *options), folder, env)


def _order(command: tuple[str, ...], folder: Path, env: dict[str, str]) -> Order:
    return Order(commands=(command,), at_once=1, cwd=str(folder), env=env, seconds=SECONDS)
