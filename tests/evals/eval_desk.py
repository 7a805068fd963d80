"""A folder with suites and targets, where `go-ent eval` runs as a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import yaml

from goent.evals.eval_results import Row, read_rows
from goent.proc import process_table
from goent.system.process_protection import MARK_VARIABLE

PATIENCE = 60.0
GO_ENT = (sys.executable, "-m", "goent", "eval")
HELLO = ({"type": "contains", "value": "hello"},)


class EvalDesk:
    """`calls` counts what the commands of targets were asked, by the id of the case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        (self.folder / ".goent").mkdir(parents=True)
        self.out = self.folder / "out"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": "",
            "DESK": str(folder),
        }
        (folder / "home").mkdir()

    def let_scripts_write_here(self) -> None:
        """As a user's own setting does: else hooks and graders write in the workspace alone."""
        config = Path(self.env["HOME"]) / ".config" / "go-ent"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.yaml").write_text(f"sandbox: {{writable: [{str(self.folder)!r}]}}\n")

    def targets(self, **commands: str) -> None:
        listed = [{"name": n, "provider": "cli", "command": c} for n, c in commands.items()]
        self.write(".goent/targets.yaml", {"targets": listed})

    def suite(
        self, ids: Sequence[str], *, name: str = "demo", assertions: Sequence[object] = HELLO
    ) -> Path:
        tests = [{"id": one, "input": "say hello", "assertions": list(assertions)} for one in ids]
        return self.write(f"{name}.eval.yaml", {"name": name, "tests": tests})

    def write(self, path: str, content: object) -> Path:
        file = self.folder / path
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    def start(self, *arguments: str | Path, shell: str = "") -> subprocess.Popen[str]:
        """`shell`: what a shell does before it becomes go-ent."""
        command = [*GO_ENT, *map(str, arguments)]
        if shell:
            command = ["bash", "-c", f'{shell}; exec "$@"', "bash", *command]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def go_ent(self, *arguments: str | Path, shell: str = "") -> "Said":
        return ended(self.start(*arguments, shell=shell))

    def rows(self, out: Path | None = None) -> tuple[Row, ...]:
        index = (out or self.out) / "index.jsonl"
        return read_rows(index).rows if index.exists() else ()

    def until_rows(self, count: int) -> None:
        until(lambda: len(self.rows()) >= count)

    def until_calls(self, count: int) -> None:
        until(lambda: self.calls.total() >= count)

    @property
    def calls(self) -> Counter[str]:
        file = self.folder / "calls"
        return Counter(file.read_text().split() if file.exists() else ())

    def left_running(self) -> list[int]:
        """Processes that were started here and still live; given a moment, for the end takes one."""
        deadline = time.monotonic() + 5
        while living := self.running():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return living

    def running(self) -> list[int]:
        """Processes that were started here and live now."""
        mine = f"DESK={self.env['DESK']}"
        return [
            pid
            for pid, environ in process_table.environments(f"{MARK_VARIABLE}=")
            if mine in environ and process_table.start_time(pid)
        ]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class Said(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


def ended(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=PATIENCE)
    return Said(process.returncode, out, err)


def interrupted(process: subprocess.Popen[str], by: signal.Signals) -> Said:
    process.send_signal(by)
    return ended(process)
