"""What the scripted models say to the prompts of the OpenCode tests."""

from goent.domain.types import Usage
from goent.testing.script import (
    Case,
    Fault,
    Script,
    ScriptedToolUse,
    Step,
    call,
    case,
    fail,
    openai,
    say,
)

TODOS = [
    {"content": "first", "status": "completed", "priority": "high"},
    {"content": "second", "status": "in_progress", "priority": "low"},
]


def subagent(prompt: str) -> Step:
    return call("task", description="a part", prompt=prompt, subagent_type="general")


COMMON: tuple[Case, ...] = (
    case("say hello", say("Hello from {model}.", think="Somebody greets.")),
    case("echo the prompt", say("[{prompt}]")),
    case(
        "work a little",
        call("write", filePath="{cwd}/made.txt", content="one\ntwo\n").having(say="I begin."),
        call("edit", filePath="{cwd}/made.txt", oldString="two\n", newString="2\n3\n"),
        call("bash", command="echo out; exit 3", description="fails"),
        call("todowrite", todos=TODOS),
        say("All done."),
    ),
    case("wait at the gate", say("I waited.").having(gate="door")),
    case("sleep in the shell", call("bash", command="sleep 300 & sleep 300", description="s")),
    case("write asked.txt", call("write", filePath="{cwd}/asked.txt", content="x\n"), say("Ok.")),
    case(
        "run two commands",
        call("bash", command="echo one > one.txt", description="1"),
        call("bash", command="echo two > two.txt", description="2"),
        say("Ran."),
    ),
    case(
        "the part that writes", call("write", filePath="{cwd}/part.txt", content="p\n"), say("P.")
    ),
    case(
        "the part that runs",
        call("bash", command="echo ran > part-ran.txt", description="r"),
        say("P."),
    ),
    case("delegate writing", subagent("the part that writes"), say("Delegated.")),
    case("delegate running", subagent("the part that runs"), say("Delegated.")),
    case(
        "delegate twice",
        Step(
            calls=tuple(
                ScriptedToolUse(
                    tool="task",
                    input={
                        "description": "a part",
                        "prompt": prompt,
                        "subagent_type": "general",
                    },
                )
                for prompt in ("the part that writes", "the part that runs")
            )
        ),
        say("Delegated."),
    ),
    case("answer 401", fail(401)),
    case("answer 404", fail(404)),
    case("search for the needle", call("grep", pattern="needle"), say("Found.")),
    case("refuse", Step(stop="content_filter")),
    case("say nothing", Step()),
    case("was interrupted", say("I went on.")),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(*COMMON, models=("glm-4", "kimi-k2"), key="sk-moon"),
        "deepseek": openai(*COMMON, models=("deepseek-coder",), key="sk-deep"),
        "local": openai(
            case(
                "spend",
                call("bash", command="true", description="t").having(
                    usage=Usage(input=800, output=90, cache_read=200, reasoning=10)
                ),
                say("Spent.", usage=Usage(input=100, output=10)),
            ),
            case(
                "be rate limited",
                say("Through.").having(
                    fault=Fault(status=429, message="too many", retry_after=0, times=2)
                ),
            ),
            models=("small",),
        ),
    }
)
