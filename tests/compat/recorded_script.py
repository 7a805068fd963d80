"""What the scripted models said when the state of a version was recorded, and with which settings."""

from goent.domain.types import Usage
from goent.testing.script import Fault, Script, Step, anthropic, call, case, fail, openai, say

APP = (
    "def greet(name):\n    return 'Hello ' + name\n\n\ndef part(name):\n    return 'Bye ' + name\n"
)
SPENT = Usage(input=800, output=90, cache_read=200, reasoning=10)
DEAR = Usage(input=2_000_000, output=10)
SOME = Usage(input=95_000, output=10)
TODOS = [
    {"content": "write it", "status": "completed", "priority": "high"},
    {"content": "look at it", "status": "in_progress", "priority": "low"},
]


def write(path: str, content: str) -> Step:
    return call("write", filePath=f"{{cwd}}/{path}", content=content)


def edit(old: str, new: str) -> Step:
    return call("edit", filePath="{cwd}/app.py", oldString=old, newString=new)


READ = call("read", filePath="{cwd}/app.py")
DONE = say("Done.")
EMPTY = Step(fault=Fault(status=402, message="Insufficient balance"))
# For go-ent's own agent, whose tools have other names.
OWN = (
    case("Sum up this conversation", say("part was mended in app.py.")),
    case("try the shell", call("Bash", command="touch never.txt"), say("I may not.")),
    case(
        "Mend part",
        call("TodoWrite", todos=[{"content": "mend part", "status": "in_progress"}]),
        call("Grep", pattern="def part"),
        call("Read", file_path="app.py"),
        call("Edit", file_path="app.py", old_string="'Bye '", new_string="'Goodbye '"),
        call("Bash", command="grep -c Goodbye app.py"),
        say("Mended.", think="It says goodbye now."),
    ),
    case("keep a note", call("Write", file_path="note.txt", content="a note\n"), say("Noted.")),
    case("what did you note", say("A note.")),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            *OWN,
            case("sum it up", say("{model} sums up.", think="Well.", usage=SPENT)),
            case(
                "write hello",
                call("todowrite", todos=TODOS),
                write("hello.txt", "hi\n").having(think="A file it is."),
                say("Written."),
            ),
            case("and once more", say("Still here.")),
            case("run the shell", call("bash", command="echo ran > ran.txt"), say("It ran.")),
            case("change the page", write("page.txt", "changed\n"), say("The page is changed.")),
            case("wait for ever", say("never").having(gate="for ever")),
            case("spend a lot", write("dear.txt", "dear\n").having(usage=DEAR), DONE),
            case("spend some", write("some.txt", "some\n").having(usage=SOME), DONE),
            case("greet politely", READ, edit("'Hello '", "'Dear '"), DONE),
            case("say goodbye", READ, edit("'Bye '", "'Farewell '"), DONE),
            case("count to three", write("count.txt", "1 2\n"), DONE),
            case("say the word", say("The word is goodbye.")),
            case(None, say("There is nothing to do.")),
            models=("glm-4",),
            key="sk-scripted-moonshot",
        ),
        "deepseek": openai(
            case("greet loudly", READ, edit("'Hello '", "'HELLO '"), DONE),
            case("count to three", write("count.txt", "1 2 3\n"), DONE),
            case(None, say("Went on with {model}.")),
            models=("deepseek-coder",),
            key="sk-scripted-deepseek",
        ),
        "claude": anthropic(
            case("remember", say("I do.", usage=Usage(input=800, output=10))),
            case("write the notes", write("NOTES.md", "# Notes\n"), DONE),
            case("sign the notes", call("bash", command="cat NOTES.md >> signed.md"), DONE),
            case(None, say("{model} has nothing to add.", think="Nothing.")),
            models=("claude-haiku",),
            key="sk-scripted-claude",
        ),
        # Its key is held: the gateway moves the single call to a fallback.
        "gone": openai(case(None, fail(503)), models=("away",), key="sk-scripted-gone"),
        # Without a key: OpenCode calls it by itself, and it is the worker that moves.
        "local": openai(
            case("write directly", write("direct.txt", "written once\n"), EMPTY), models=("small",)
        ),
    }
)
PROVIDERS = """\
providers:
  glm: {provider: moonshot, model: glm-4, best_for: [implement], fallbacks: [spare]}
  spare: {provider: deepseek, model: deepseek-coder}
  haiku: {provider: claude, model: claude-haiku, price: {input: 1, output: 5, cache_read: 0.1}}
  away: {provider: gone, model: away, fallbacks: [spare]}
  mine: {provider: local, model: small, fallbacks: [spare]}
"""
CONFIG = """\
opencode: {{profile: hermetic, warm: false, standby: never}}
default_provider: glm
limits: {{cancel_grace_s: 3}}
budget: {{per_task: 0.10}}
agents:
  actor: {{command: [{python}, {actor}, --keep, {kept}], models: [small, large]}}
"""
TASKS: list[dict[str, object]] = [
    {"id": "polite", "prompt": "greet politely", "provider": "glm"},
    {"id": "loud", "prompt": "greet loudly", "provider": "spare"},
    {"id": "bye", "prompt": "say goodbye", "provider": "glm"},
    {"id": "notes", "prompt": "write the notes", "provider": "haiku"},
    {
        "id": "sign",
        "prompt": "sign the notes",
        "provider": "haiku",
        "after": ["notes"],
        "permissions": "auto",
        "verify": ["grep -q Notes signed.md"],
    },
    {
        "id": "count",
        "prompt": "count to three",
        "provider": "glm",
        "verify": ["grep -q 3 count.txt"],
    },
]
LEFT: list[dict[str, object]] = [
    {"id": "stuck", "prompt": "wait for ever", "provider": "glm"},
    {"id": "poor", "prompt": "sum it up", "provider": "glm", "budget_usd": 0.000001},
    {"id": "later", "prompt": "sum it up", "provider": "glm", "after": ["stuck"]},
]
TARGETS: list[dict[str, object]] = [
    {
        "name": "opencode",
        "provider": "opencode",
        "model": "moonshot/glm-4",
        "permission_policy": "once",
    },
    {
        "name": "worker",
        "provider": "goent",
        "subprovider": "glm",
        "method": "acp",
        "permissions": "auto",
    },
    {"name": "fixed", "provider": "mock", "response": "The word is hello."},
]
SUITE: dict[str, object] = {
    "name": "words",
    "execution": {"targets": [target["name"] for target in TARGETS]},
    "tests": [
        {
            "id": "says",
            "input": "say the word",
            "assertions": [{"type": "contains", "value": "goodbye"}],
        },
        {
            "id": "changes",
            "input": "change the page",
            "workspace": {"template": "template"},
            "assertions": [
                {
                    "type": "tool-trajectory",
                    "mode": "in_order",
                    "expected": [{"tool": "write", "status": "ok"}],
                },
                {
                    "type": "code-grader",
                    "command": ["sh", "look.sh"],
                },
            ],
        },
    ],
}
LOOK = 'cat >/dev/null; grep changed "$GOENT_WORKSPACE_PATH/page.txt"\n'
