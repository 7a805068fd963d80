"""Where do both sides work? In one private directory, on one scripted model, each at home.

go-ent's user and OpenCode's have a home each, so that neither finds what the other has warmed.
Nothing outside of the folder is read or written, and nothing but loopback is called.
"""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from goent.agents.opencode_program import find_opencode
from goent.domain.errors import OpenCodeMissing
from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import Script, call, case, openai, say
from goent.testing.scripted_server import ScriptedModels

KEY, KEY_NAME = "sk-bench-0123456789abcdef", "MOONSHOT_API_KEY"
MODEL = "moonshot/glm-4"
ONE_STEP = "Say hello."
TWO_STEPS = ("Write a note.", "Write a memo.", "Write a letter.")  # each with a gate of that name
THREE_STEPS = "Write slowly."
SWARM_STEPS = "Write in a folder of your own."
EVAL_STEPS = "Write at once."
OUR_TOOLS, PEER_TOOLS = "Read, edit and run.", "Look, change and try."  # in either one's words
WORK, SLOW = "Work hard.", "Think long."
MODEL_S = 3.0  # what the slow model takes for each answer
SETTINGS = "opencode: {profile: hermetic}\ndaemon: {idle_exit_s: 300}\n"
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(ONE_STEP, say("Hello.")),
            *(
                case(
                    prompt,
                    call("write", filePath="{cwd}/notes/{n}.txt", content="a note\n"),
                    say("Written.").having(gate=prompt),
                )
                for prompt in TWO_STEPS
            ),
            case(
                THREE_STEPS,
                *(
                    step.having(delay=MODEL_S)
                    for step in (
                        call("write", filePath="{cwd}/notes/{n}.txt", content="a note\n"),
                        call("bash", command="ls notes", description="look"),
                        say("Written."),
                    )
                ),
            ),
            case(
                SWARM_STEPS,
                *(
                    step.having(delay=MODEL_S)
                    for step in (
                        call("write", filePath="{cwd}/notes/{n}.txt", content="a note\n"),
                        say("Written."),
                    )
                ),
            ),
            case(
                EVAL_STEPS,
                call("write", filePath="{cwd}/notes/{n}.txt", content="a note\n"),
                say("Written."),
            ),
            case(
                WORK,
                # What it leaves running would be there for a minute, if nobody swept.
                call("bash", command="sleep 60 >/dev/null 2>&1 & sleep 0.3", description="work"),
                call("write", filePath="{cwd}/notes/{n}.txt", content="a note\n"),
                say("Done."),
            ),
            case(
                OUR_TOOLS,
                call("Read", file_path="{cwd}/colours.txt"),
                call(
                    "Edit",
                    file_path="{cwd}/colours.txt",
                    old_string="green",
                    new_string="yellow",
                ),
                call("Bash", command="cat colours.txt", description="look"),
                say("It is yellow now."),
            ),
            case(
                PEER_TOOLS,
                call("read", filePath="{cwd}/colours.txt"),
                call("edit", filePath="{cwd}/colours.txt", oldString="green", newString="yellow"),
                call("bash", command="cat colours.txt", description="look"),
                say("It is yellow now."),
            ),
            case(SLOW, say("That was long.").having(delay=120)),
            case("was interrupted", say("I went on.")),
            models=("glm-4",),
            key=KEY,
        )
    }
)
GO_ENT = (str(Path(sys.executable).parent / "go-ent"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The directory of work, the models, and the environment of either side."""

    home: Path
    project: Path
    models: ScriptedModels
    env: dict[str, str]
    peer_env: dict[str, str]
    opencode: str

    def peer_run(self, prompt: str, *, cwd: Path | None = None) -> tuple[str, ...]:
        where = ("--dir", str(cwd)) if cwd else ()
        return (self.opencode, "run", "--model", MODEL, *where, prompt)

    def go_ent_run(self, prompt: str) -> tuple[str, ...]:
        return (*GO_ENT, "run", "--permissions", "auto", prompt)


@asynccontextmanager
async def a_place(folder: Path) -> AsyncGenerator[Place]:
    """Made below `folder`. On leaving, the daemon is stopped."""
    home, project, peer_home = folder / "home", folder / "project", folder / "peer"
    for path in (home / "tmp", home / "run", project / ".goent"):
        path.mkdir(parents=True)
        path.chmod(0o700)
    (project / ".goent" / "config.yaml").write_text(SETTINGS)
    (project / "README.md").write_text("# A project\n")
    async with ScriptedModels(SCRIPT) as models:
        # As in a home where OpenCode has been used: its plugin package is there.
        for base, key in ((home, f"{{env:{KEY_NAME}}}"), (peer_home, KEY)):
            config = base / ".config" / "opencode" / "opencode.json"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text(opencode_config(models, keys={"moonshot": key}))
        place = Place(
            home=home,
            project=project,
            models=models,
            opencode=str(_opencode()),
            peer_env={**hermetic_env(peer_home), "PWD": str(project)},
            env={
                "HOME": str(home),
                "PATH": os.environ["PATH"],
                "TMPDIR": str(home / "tmp"),
                "XDG_RUNTIME_DIR": str(home / "run"),
                "LANG": "C.UTF-8",
                "GOENT_OPENCODE": str(_opencode()),
                KEY_NAME: KEY,
            },
        )
        await anyio.to_thread.run_sync(_make_repository, place)
        try:
            yield place
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(stop_daemon, place)


def stop_daemon(place: Place) -> None:
    command = [*GO_ENT, "daemon", "stop", "--force"]
    subprocess.run(
        command, cwd=place.project, env=place.env, capture_output=True, check=False, timeout=60
    )


def _opencode() -> Path:
    try:
        return find_opencode(None, os.environ)
    except OpenCodeMissing as error:
        sys.exit(f"bench: {error}")


def _make_repository(place: Place) -> None:
    """Work happens in git checkouts, and OpenCode takes snapshots in them."""
    author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for args in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "begin")):
        subprocess.run(["git", *args], cwd=place.project, env=place.env, check=True)
