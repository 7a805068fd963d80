"""Records what this go-ent writes to disk, so that later ones can be held to reading it.

    PYTHONPATH=tests .venv/bin/python tests/compat/state_recorder.py FOLDER

Real daemons, a real OpenCode and real git work below `/tmp/goent-v01`; only the models are scripted.
FOLDER then holds the databases as SQL, the repository as a bundle, the runs of an evaluation, the
settings, and in `answers.json` what the commands of this go-ent told of all that. What is in FOLDER for
a released version is never recorded again: ids and times are others each time, and a later go-ent
writes other rows.
"""

import json
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import yaml
from agent_wire import an_agent, words
from mcp import Client
from real_git import a_repository
from recorded_script import (
    APP,
    CONFIG,
    LEFT,
    LOOK,
    PROVIDERS,
    SCRIPT,
    SUITE,
    TARGETS,
    TASKS,
)
from recorded_state import AGENT_HOME, KEYS, ROOT, STATE, Answers, call_directly
from sql_dump import content, dump, restore
from world import World, a_world, kill, told

from goent.system.project_folders import state_dir
from goent.system.project_lock import lock_holder

ACTOR = Path(__file__).parent.parent / "drivers" / "agent_actor.py"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PATIENCE = 240  # seconds for each part
TEACHING = 17  # calls of a model, of which every eighth teaches how far off an estimate is
METHODS = ("acp", "cli", "serve", "api", "agent")


class Lead:
    """A lead over MCP; `names` are the workers by what they show."""

    def __init__(self, world: World, client: Client) -> None:
        self.world, self.client = world, client
        self.names: dict[str, str] = {}

    async def ask(self, tool: str, **arguments: object) -> dict[str, Any]:
        return told(await self.client.call_tool(tool, arguments))

    async def spawn(self, name: str, task: str, **more: object) -> dict[str, Any]:
        """Until it ends, unless `wait_s` says something else."""
        asked = {"task": task, "wait_s": 200, "permissions": "auto", **more}
        spawned = await self.ask("worker_spawn", **asked)
        self.names[name] = spawned["worker_id"]
        return spawned

    async def question(self, name: str) -> dict[str, Any] | None:
        """What the worker asks; None once its turn is over."""
        worker = self.names[name]
        waited = await self.ask("worker_wait", worker_ids=[worker], timeout_s=120)
        return waited["workers"][0]["permission"]

    async def answer(self, name: str, option: str) -> None:
        question = await self.question(name)
        assert question, f"{name} asked nothing"
        worker = self.names[name]
        await self.ask(
            "worker_answer", worker_id=worker, permission_id=question["id"], option=option
        )
        await self.ask("worker_wait", worker_ids=[worker], timeout_s=120)

    async def until_over(self, swarm: str) -> None:
        while (await self.ask("swarm_wait", swarm_id=swarm, timeout_s=60))["state"] == "running":
            pass


async def give_tasks(lead: Lead) -> None:
    """A worker for each method, and for each way in which a task can end."""
    for method in METHODS:
        await lead.spawn(f"by {method}", "sum it up", method=method, provider="glm")
    await lead.spawn("two turns", "write hello", verify=["grep -q hi hello.txt"])
    worker = lead.names["two turns"]
    await lead.ask("worker_prompt", worker_id=worker, prompt="and once more", wait_s=120)
    await lead.spawn("verified", "write hello", verify=["grep -q hi hello.txt", "test -s app.py"])
    await lead.spawn("refuted", "write hello", verify=["echo looks; grep -q nothing hello.txt"])
    await lead.spawn("in a worktree", "write hello", isolation="worktree", permissions=None)
    await lead.spawn("over budget", "spend a lot", provider="glm", budget_usd=1.5)
    await lead.spawn("warned", "spend some", provider="glm")
    await lead.spawn("many turns", "remember " + "words " * 400, provider="haiku", method="api")
    worker = lead.names["many turns"]
    for turn in range(2, TEACHING + 1):
        prompt = f"remember number {turn}"
        await lead.ask("worker_prompt", worker_id=worker, prompt=prompt, wait_s=60)
    await lead.spawn("moved", "write directly", provider="mine", allow_fallback=True)
    await lead.spawn("call moved", "sum it up", provider="away", allow_fallback=True)
    await lead.spawn("stayed", "sum it up", provider="away")
    await lead.spawn("closed", "sum it up")
    await lead.ask("worker_cancel", worker_id=lead.names["closed"], close=True, reason="enough")


async def ask_questions(lead: Lead) -> None:
    for name, option in (("allowed", "allow_once"), ("rejected", "reject")):
        await lead.spawn(name, "run the shell", permissions="edit", wait_s=0)
        await lead.answer(name, option)
    await lead.spawn("cancelled", "wait for ever", wait_s=0, timeout_s=600)
    await lead.world.models.at_gate("for ever", timeout=60)
    await lead.ask("worker_cancel", worker_id=lead.names["cancelled"], reason="too slow")
    await lead.spawn("cancelled while it asked", "run the shell", permissions="edit", wait_s=0)
    await lead.question("cancelled while it asked")
    await lead.ask("worker_cancel", worker_id=lead.names["cancelled while it asked"])
    await lead.spawn("question withdrawn", "run the shell", permissions="edit", wait_s=0)
    await lead.question("question withdrawn")
    for pid in opencodes(lead.world):
        kill(pid)
    while (await lead.question("question withdrawn")) is not None:
        pass


def opencodes(world: World) -> list[int]:
    """The processes of `opencode acp`."""
    found: list[int] = []
    for pid in world.processes():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"acp" in command and b"goent" not in command:
                found.append(pid)
    return found


async def ask_agents(lead: Lead) -> None:
    """Another ACP agent, and go-ent's own, which is left open for a next go-ent."""
    await lead.spawn("another agent", "say hello", provider="actor", permissions="ask")
    bash = {"kind": "execute", "title": "make", "rawInput": {"command": "make"}}
    actor = lead.names["another agent"]
    await lead.ask("agent_prompt_acp", worker_id=actor, prompt=f"ask {json.dumps([bash])}")
    await lead.answer("another agent", "allow_once")
    spend = {"costs": [0.25], "usage": {"inputTokens": 10, "outputTokens": 5}}
    await lead.spawn("told its costs", f"spend {json.dumps(spend)}", provider="actor")
    await lead.spawn("died", "die 7", provider="actor")
    asked = {"task": "keep a note", "model": "glm", "permissions": "edit", "wait_s": 120}
    lead.names["own agent"] = (await lead.ask("agent_spawn_acp", **asked))["worker_id"]


async def give_swarms(lead: Lead) -> None:
    """One with a conflict, a retry and a merge; one of which nothing comes."""
    tidy = (await lead.ask("swarm_spawn", swarm="tidy", tasks=TASKS, concurrency=6))["swarm_id"]
    await lead.until_over(tidy)
    await lead.ask("swarm_retry", swarm_id=tidy, tasks=["count"], provider="spare")
    await lead.until_over(tidy)
    await lead.ask("swarm_merge", swarm_id=tidy)
    left = (await lead.ask("swarm_spawn", swarm="left", tasks=LEFT))["swarm_id"]
    await lead.world.models.at_gate("for ever", 2, timeout=60)
    await lead.ask("swarm_cancel", swarm_id=left, reason="not today")
    await lead.until_over(left)
    lead.names |= {"swarm tidy": tidy, "swarm left": left}


async def evaluate(world: World) -> None:
    """Two runs of a suite: each case, each target, two trials."""
    project = world.project
    (project / ".goent" / "targets.yaml").write_text(yaml.safe_dump({"targets": TARGETS}))
    (project / "words.eval.yaml").write_text(yaml.safe_dump(SUITE, sort_keys=False))
    (project / "look.sh").write_text(LOOK)
    (project / "template").mkdir()
    (project / "template" / "page.txt").write_text("as it was\n")
    for name in ("first", "second"):
        out = ("--out", f".goent/evals/{name}", "--trials", "2")
        ended = await world.go_ent("eval", "run", "words.eval.yaml", *out, seconds=240)
        assert ended.exit == 1, ended  # the fixed answer is a wrong one


async def edit_with_the_agent(world: World) -> str:
    """A session of an editor with go-ent's own agent; its id."""
    async with an_agent(world, "--model", "moonshot/glm-4") as wire:
        made = await wire.ask("session/new", cwd=str(world.project), mcpServers=[])
        session = made["sessionId"]
        picture = {"type": "image", "mimeType": "image/png", "data": PIXEL}
        link = {"type": "resource_link", "name": "app.py", "uri": f"file://{world.project}/app.py"}
        inside = {"uri": f"file://{world.project}/README.md", "text": "hello\n"}
        document = {"type": "resource", "resource": inside}
        await wire.prompt(session, words("Mend part in app.py."), link, document, picture)
        await wire.prompt(session, words("/cost"))
        await wire.prompt(session, words("/compact"))
        await wire.prompt(session, words("/mode plan"))
        await wire.prompt(session, words("try the shell"))
    return session


async def be_killed(world: World) -> Answers:
    """A daemon that dies while one worker works and another one asks."""
    (world.project / ".goent").mkdir(parents=True)
    settings = ROOT / "project" / ".goent"
    for name in ("config.yaml", "providers.yaml"):
        shutil.copy(settings / name, world.project / ".goent" / name)
    async with world.client() as client:
        lead = Lead(world, client)
        for name, task in (("working", "wait for ever"), ("asking", "try the shell")):
            asked = {"task": task, "model": "glm", "permissions": "edit"}
            lead.names[name] = (await lead.ask("agent_spawn_acp", **asked))["worker_id"]
        await world.models.at_gate("for ever", 3, timeout=60)
        await lead.question("asking")
    held = lock_holder(world.socket.parent)
    assert held and held.pid
    kill(held.pid)  # not while a client is there, which would start another one
    await world.end()
    return {"names": lead.names}


async def told_by_commands(world: World, names: Mapping[str, str]) -> Answers:
    """What this go-ent tells of its state."""

    async def asked(*args: str) -> Any:
        return json.loads((await world.go_ent(*args, "--json")).out)

    workers = [line["worker_id"] for line in (await asked("ps", "--all"))["workers"]]
    swarms = {name: names[name] for name in names if name.startswith("swarm ")}
    return {
        "names": names,
        "ps": await asked("ps", "--all"),
        "status": {worker: await asked("status", worker) for worker in workers},
        "results": {worker: await asked("result", worker) for worker in workers},
        "output": {worker: (await world.go_ent("output", worker)).out for worker in workers},
        "costs": {by: await asked("costs", "--by", by) for by in ("provider", "model", "worker")},
        "swarms": {
            swarm: {what: await asked("swarm", what, swarm) for what in ("status", "result")}
            for swarm in swarms.values()
        },
        "learned": await asked("routes", "learned"),
        "compared": await asked(
            "eval", "compare", ".goent/evals/first", "--targets", "opencode", "fixed"
        ),
        "report": await asked("eval", "report", ".goent/evals/first"),
    }


async def hand_over(world: World) -> None:
    """As a go-ent of another version does before it starts a daemon of its own."""
    hello: dict[str, object] = {
        "goent": 1,
        "version": "0",
        "kind": "control",
        "cwd": str(world.project),
        "env": {},
    }
    stop: dict[str, object] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "daemon_stop",
        "params": {"if_idle": True, "handover": True},
    }
    async with await anyio.connect_unix(world.socket) as stream:
        await stream.receive()
        await stream.send(b"".join(json.dumps(line).encode() + b"\n" for line in (hello, stop)))
        assert b'"stopping":true' in await stream.receive()
    with anyio.fail_after(60):
        while lock_holder(world.socket.parent):  # noqa: ASYNC110 (a lock announces nothing)
            await anyio.sleep(0.05)


async def perform(world: World) -> Answers:
    """All of it; afterwards nothing runs."""
    (world.project / ".goent" / "providers.yaml").write_text(PROVIDERS)
    call_directly(world)
    async with world.client() as client:
        lead = Lead(world, client)
        for part in (give_tasks, ask_questions, ask_agents, give_swarms):
            with anyio.fail_after(PATIENCE):
                await part(lead)
    await evaluate(world)
    session = await edit_with_the_agent(world)
    answers = await told_by_commands(world, lead.names)
    await hand_over(world)
    killed = replace(world, project=ROOT / "killed")
    return {**answers, "session": session, "killed": await be_killed(killed)}


async def started_settings(world: World, out: Path) -> None:
    """What `go-ent init` writes in a project that has nothing."""
    fresh = ROOT / "fresh"
    (fresh / ".git").mkdir(parents=True)
    ended = await replace(world, project=fresh).go_ent("init")
    assert ended.exit == 0, ended
    shutil.copytree(fresh / ".goent", out / "settings" / "init")


def keep(world: World, out: Path, answers: Answers) -> None:
    """Copy what is on disk."""
    state = state_dir(world.env)
    files = {name: state / f"{name}.db" for name in STATE}
    for name, key in KEYS.items():
        own = state / "projects" / key
        files[f"journal-{name}"] = own / "journal.db"
        files[f"sessions-{name}"] = own / AGENT_HOME / "sessions.db"
    for name, database in files.items():
        _keep_database(database, out / f"{name}.sql")
    for name in ("words.eval.yaml", "look.sh", "template"):
        _copy(world.project / name, out / "project" / name)
    for path in sorted((world.project / ".goent").glob("*.yaml")):
        _copy(path, out / "project" / ".goent" / path.name)
    for run in ("first", "second"):
        _copy(world.project / ".goent/evals" / run, out / "project/.goent/evals" / run)
    for lock in out.rglob(".lock"):
        lock.unlink()
    (out / "answers.json").write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")


def _keep_database(database: Path, kept: Path) -> None:
    with closing(sqlite3.connect(database)) as sql:
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    kept.write_text(dump(database))
    again = ROOT / "restored" / kept.stem
    restore(kept.read_text(), again)
    assert content(again) == content(database), f"{database.name} is another one when restored"


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def check_neutral(out: Path) -> None:
    """Nothing that was kept tells of this machine, or has a key."""
    repository = Path(__file__).resolve().parents[2]
    private = {str(repository), str(Path.home()), sys.prefix} - {"/"}
    private |= {provider.key for provider in SCRIPT.providers.values() if provider.key}
    for path in (path for path in out.rglob("*") if path.is_file()):
        kept = path.read_bytes()
        found = [
            x for x in private if x.encode() in kept or x.encode().hex().upper().encode() in kept
        ]
        assert not found, f"{path} tells {found}"


async def main(out: Path) -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir(mode=0o700)
    (ROOT / "kept").mkdir()
    actor = shutil.copy(ACTOR, ROOT / "agent_actor.py")
    config = CONFIG.format(python="python3", actor=actor, kept=ROOT / "kept")
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.sql"), *out.glob("*.bundle"), out / "answers.json"):
        old.unlink(missing_ok=True)
    for folder in (out / "project", out / "settings" / "init"):
        shutil.rmtree(folder, ignore_errors=True)
    async with a_world(ROOT, SCRIPT, config=config) as world:
        repository = a_repository(world.project, files={"app.py": APP})
        answers = await perform(world)
        await started_settings(world, out)
        repository.git("bundle", "create", "--quiet", out.resolve() / "project.bundle", "--all")
    keep(world, out, answers)
    check_neutral(out)


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
