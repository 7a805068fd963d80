"""An ACP agent that does what its prompt says, on the standard library alone.

Its flags say what kind of agent it is. Sessions are files in the folder that `--keep` names.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODELS = ["small", "large"]
LOGIN = {"id": "browser", "name": "Log in with a browser"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--resumes", action="store_true")
    parser.add_argument("--models", choices=["options", "legacy", "none"], default="options")
    parser.add_argument("--at-start", default="")
    parser.add_argument("--version", type=int, default=1)
    parser.add_argument("--logged-out", action="store_true")
    parser.add_argument("--logins", type=json.loads, default=[LOGIN])
    parser.add_argument("--refuses-login", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--sulky", action="store_true")
    parser.add_argument("--modes", default="")  # the first is the one it begins in
    parser.add_argument("--modes-by", choices=["option", "list"], default="list")
    parser.add_argument("--stubborn", action="store_true")
    return parser.parse_args()


class Refusal(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class Actor:
    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.session = ""
        self.login = ""
        self.model = MODELS[0]
        self.modes = [name for name in str(flags.modes).split(",") if name]
        self.mode = next(iter(self.modes), "")
        self.asked = 0
        self.history: list[str] = []

    # The wire

    def read(self) -> dict[str, Any]:
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        return json.loads(line)

    def send(self, **message: object) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def update(self, what: str, /, **fields: object) -> None:
        params = {"sessionId": self.session, "update": {"sessionUpdate": what, **fields}}
        self.send(method="session/update", params=params)

    def say(self, text: str) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text})

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask the client; a cancel that comes meanwhile is kept for nobody."""
        self.asked += 1
        name = f"a{self.asked}"
        self.send(id=name, method=method, params={"sessionId": self.session, **params})
        while (reply := self.read()).get("id") != name:
            pass
        return reply

    # What a client asks

    def serve(self) -> None:
        while True:
            asked = self.read()
            if "id" not in asked or "method" not in asked:
                continue
            try:
                result = self.answer(asked["method"], asked.get("params", {}))
            except Refusal as no:
                error = {"code": no.code, "message": str(no), "data": no.data}
                self.send(id=asked["id"], error=error)
            else:
                self.send(id=asked["id"], result=result)

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return self.hello()
            case "authenticate":
                return self.log_in(params["methodId"])
            case "session/new" | "session/resume" if self.flags.logged_out:
                raise Refusal(-32000, "Authentication required")
            case "session/new":
                self.session = f"s-{os.getpid()}"
                return {"sessionId": self.session, **self.offered()}
            case "session/load" | "session/resume":
                return self.come_back(params["sessionId"])
            case "session/set_mode":
                return self.set_mode(params["modeId"])
            case "session/set_config_option" if params["configId"] == "mode":
                return self.set_mode(params["value"]) | self.offered()
            case "session/set_config_option" | "session/set_model":
                self.model = params.get("value") or params["modelId"]
                return self.offered() if "value" in params else {}
            case "session/prompt":
                prompt = params["prompt"][0]["text"]
                return self.turn(prompt)
            case _:
                raise Refusal(-32601, f"no {method}")

    def log_in(self, method: str) -> dict[str, Any]:
        if self.flags.refuses_login:
            raise Refusal(-32603, "the browser was closed")
        self.login, self.flags.logged_out = method, False
        return {}

    def hello(self) -> dict[str, Any]:
        sessions: dict[str, Any] = {"resume": {}} if self.flags.resumes else {}
        able: dict[str, Any] = {
            "loadSession": bool(self.flags.keep),
            "sessionCapabilities": sessions,
        }
        return {
            "protocolVersion": self.flags.version,
            "agentCapabilities": able,
            "agentInfo": {"name": "actor", "version": "1"},
            "authMethods": self.flags.logins if self.flags.logged_out else [],
        }

    def set_mode(self, mode: str) -> dict[str, Any]:
        if mode not in self.modes:
            raise Refusal(-32602, f"no mode {mode}")
        if not self.flags.stubborn:
            self.mode = mode
        self.update("current_mode_update", currentModeId=self.mode)
        return {}

    def offered(self) -> dict[str, Any]:
        found = self.offered_models()
        if self.modes and self.flags.modes_by == "list":
            modes = [{"id": name, "name": name} for name in self.modes]
            found["modes"] = {"currentModeId": self.mode, "availableModes": modes}
        elif self.modes:
            choices = [{"value": name, "name": name} for name in self.modes]
            option = {"id": "mode", "name": "Mode", "type": "select", "category": "mode"}
            option |= {"currentValue": self.mode, "options": choices}
            found["configOptions"] = [*found.get("configOptions", ()), option]
        return found

    def offered_models(self) -> dict[str, Any]:
        if self.flags.models == "options":
            choices = [{"value": name, "name": name.title()} for name in MODELS]
            option = {"id": "llm", "name": "Model", "type": "select", "category": "model"}
            return {"configOptions": [option | {"currentValue": self.model, "options": choices}]}
        if self.flags.models == "legacy":
            available = [{"modelId": name, "name": name} for name in MODELS]
            return {"models": {"availableModels": available, "currentModelId": self.model}}
        return {}

    def come_back(self, session: str) -> dict[str, Any]:
        kept = self.flags.keep / session
        if not kept.exists():
            raise Refusal(-32002, "no such session")
        self.session, self.history = session, kept.read_text().splitlines()
        for line in self.history:
            self.say(f"(replayed: {line})")
        return self.offered()

    # What a prompt makes it do

    def turn(self, prompt: str) -> dict[str, Any]:
        self.history.append(prompt)
        if self.flags.keep:
            (self.flags.keep / self.session).write_text("\n".join(self.history) + "\n")
        word, _, rest = prompt.splitlines()[-1].partition(" ")
        done = getattr(self, f"do_{word}")(rest)
        return done or {"stopReason": "end_turn"}

    def do_say(self, text: str) -> None:
        self.say(text)

    def do_history(self, _: str) -> None:
        self.say(" | ".join(self.history))

    def do_model(self, _: str) -> None:
        self.say(self.model)

    def do_mode(self, mode: str) -> None:
        """Say the mode, or leave it for another."""
        self.say(self.mode)
        if mode:
            self.mode = mode
            self.update("current_mode_update", currentModeId=mode)

    def do_make(self, path: str) -> None:
        """Write a file, and tell nobody."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("made\n")
        self.say("looked around")

    def do_act(self, rest: str) -> dict[str, Any]:
        """Do things unasked, tell of them, and go on until somebody says stop."""
        self.do_call(rest)
        return self.do_wait("")

    def do_env(self, name: str) -> None:
        self.say(os.environ.get(name, "unset"))

    def do_login(self, _: str) -> None:
        self.say(self.login or "none")

    def do_cwd(self, _: str) -> None:
        self.say(str(Path.cwd()))

    def do_mute(self, _: str) -> None:
        pass

    def do_die(self, code: str) -> None:
        self.update("tool_call", toolCallId="t1", title="long", kind="execute", status="pending")
        sys.stderr.write("out of luck\n")
        sys.stderr.flush()
        os._exit(int(code))

    def do_hangup(self, _: str) -> None:
        os.close(1)
        os.close(0)
        time.sleep(60)

    def do_wait(self, _: str) -> dict[str, Any]:
        self.say("waiting")
        while True:
            if self.read().get("method") == "session/cancel" and not self.flags.deaf:
                return {"stopReason": "cancelled"}

    def do_stop(self, reason: str) -> dict[str, Any]:
        self.say("so far")
        return {"stopReason": reason}

    def do_refuse(self, rest: str) -> None:
        told = json.loads(rest)
        raise Refusal(told.get("code", -32603), told["message"], told.get("data"))

    def do_call(self, rest: str) -> None:
        """A tool call, in the updates that the prompt gives."""
        for number, update in enumerate(json.loads(rest)):
            kind = "tool_call_update" if number else "tool_call"
            self.update(kind, **{"toolCallId": "t1", **update})

    def do_tell(self, rest: str) -> None:
        """Tell of a call, and then ask for it by its name alone."""
        self.update("tool_call", toolCallId="c0", status="pending", **json.loads(rest))
        self.do_ask("[{}]")

    def do_ask(self, rest: str) -> dict[str, Any] | None:
        """Ask for permission, once for each call that the prompt gives."""
        for number, call in enumerate(json.loads(rest)):
            options = [
                {"optionId": "y", "name": "Yes", "kind": "allow_once"},
                {"optionId": "yy", "name": "Always", "kind": "allow_always"},
                {"optionId": "n", "name": "No", "kind": "reject_once"},
            ]
            asked = {"toolCall": {"toolCallId": f"c{number}", **call}, "options": options}
            reply = self.ask("session/request_permission", asked)
            outcome = reply["result"]["outcome"]
            self.say(f"[{outcome.get('optionId', outcome['outcome'])}]")
            if outcome["outcome"] == "cancelled" or self.flags.sulky:
                return {"stopReason": "cancelled"}
        return None

    def do_then(self, rest: str) -> None:
        """Ask for the first calls, and whatever the answers are, tell the others as done."""
        asked, told = json.loads(rest)
        self.do_ask(json.dumps(asked))
        self.do_call(json.dumps(told))

    def do_write(self, path: str) -> None:
        reply = self.ask("fs/write_text_file", {"path": path, "content": "x"})
        self.say(str(reply.get("error", {}).get("code")))
        reply = self.ask("terminal/create", {"command": "ls"})
        self.say(str(reply.get("error", {}).get("code")))

    def do_flood(self, count: str) -> None:
        for number in range(int(count)):
            self.say(f"{number} ")

    def do_long(self, size: str) -> None:
        self.say("x" * int(size))
        self.say("done")

    def do_noise(self, _: str) -> None:
        for line in ("log: not JSON", "[1,2]", '{"jsonrpc":"2.0"}', '{"id":99,"result":{}}'):
            sys.stdout.write(line + "\n")
        self.update("from_the_future", text="?")
        self.send(method="session/update", params={"sessionId": "other", "update": {}})
        self.say("still here")

    def do_spend(self, rest: str) -> dict[str, Any]:
        self.say("spent")
        told = json.loads(rest)
        for cost in told.get("costs", []):
            amount = {"amount": cost, "currency": told.get("currency", "USD")}
            self.update("usage_update", used=10, size=100, cost=amount)
        return {"stopReason": "end_turn", "usage": told.get("usage")}

    def do_bash(self, command: str) -> None:
        """A child in a session of its own, as agents start them; it stays."""
        os.posix_spawnp(command.split(maxsplit=1)[0], command.split(), os.environ, setsid=True)
        self.say("started")


def main() -> None:
    flags = arguments()
    match flags.at_start:
        case "exit":
            sys.stderr.write("no config found\n")
            sys.exit(3)
        case "silent":
            time.sleep(600)
        case "garbage":
            sys.stdout.write("Welcome to actor 1.0!\n{oops\n")
        case _:
            pass
    Actor(flags).serve()


main()
