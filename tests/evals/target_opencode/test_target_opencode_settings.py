"""What can be set about OpenCode as a target; which rules, words and traces come of it."""

import resource
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from eval_opencode import Heard, an_attempt, spec
from msgspec.structs import replace

from goent.domain.errors import ConfigError, ProtocolError
from goent.evals.files.target_reader import load_targets
from goent.evals.suites import InputMessage
from goent.evals.targets.opencode_target import opencode_prompt
from goent.evals.targets.opencode_target_permissions import AttemptPermissions, session_rules
from goent.evals.targets.opencode_target_settings import (
    OPENCODE_SETTING_NAMES,
    OpenCodeTargetSettings,
    port_conflicts,
    read_opencode_settings,
)
from goent.evals.targets.opencode_transcript import (
    LiveTranscript,
    SessionMessage,
    StreamLog,
    ordered_messages,
    traced_message,
)
from goent.opencode.event_stream import MessageUpdated, PartDelta, PartUpdated
from goent.opencode.server_api import (
    MessageInfo,
    MessagePart,
    MessageTime,
    OpenCodeClient,
    PendingQuestion,
    QuestionSubject,
    ServerMessage,
    ToolReference,
)
from goent.permissions.access_rules import strictest_action


@pytest.mark.spec("E01")
def test_every_mistake_is_told_with_its_path() -> None:
    with pytest.raises(ConfigError) as caught:
        read_opencode_settings(
            spec(
                modell="x",
                port=70000,
                timeout_seconds=0,
                permission_policy="maybe",
                tools={"bash": "no", "read": True},
                permission={"bash": {"rm *": "never"}},
                env={"A": 1},
                config={"provider": [], "enabled_providers": "x", "model": 1},
                cwd="../elsewhere",
                base_url="localhost:1",
                executable="a",
                binary="b",
            )
        )
    told = str(caught.value)
    for expected in (
        "targets.yaml:3: target 'coder' (opencode): modell: is not a setting",
        "port: must be at most 65535, not 70000",
        "timeout_seconds: must be more than 0",
        "permission_policy: unknown permission_policy 'maybe'; one of reject, once, always",
        "tools.bash: expected true or false, not 'no'",
        "permission.bash.rm *: unknown value 'never'; one of ",
        "env.A: expected text",
        "config.provider: expected a table, not a list",
        "config.enabled_providers: expected a list, not",
        "cwd: must be a folder inside the attempt's own directory, not '../elsewhere'",
        "base_url: expected an address",
        "binary: has the same meaning as `executable`",
        "executable: has no effect on the server at `base_url`",
    ):
        assert expected in told, told
    assert "tools.read" not in told


def test_servers_that_are_many_cannot_have_one_port() -> None:
    with pytest.raises(
        ConfigError, match="port: several servers cannot all have port 4096; remove"
    ):
        read_opencode_settings(spec(port=4096, shared_server=False))
    assert read_opencode_settings(spec(port=0, shared_server=False)).port == 0


def test_targets_whose_servers_differ_cannot_have_one_port() -> None:
    one, alike, other, elsewhere, free = (
        replace(spec(**settings), name=name)
        for name, settings in {
            "one": {"port": 4096, "model": "a/b"},
            "alike": {"port": "4096", "model": "c/d", "permission_policy": "once"},
            "other": {"port": 4096, "env": {"A": "1"}},
            "elsewhere": {"port": 4096, "hostname": "::1", "env": {"A": "1"}},
            "free": {"port": 0, "env": {"A": "1"}},
        }.items()
    )
    assert not list(port_conflicts([one, alike, elsewhere, free]))
    (clash,) = port_conflicts([one, alike, other, elsewhere, free])
    assert "'other': port 4096 is that of target 'one', too" in clash
    assert "for env differ; set another `port`" in clash


@pytest.mark.spec("E01")
def test_a_file_may_write_either_spelling_and_its_mistakes_have_lines(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text(
        "targets:\n  - {name: a, provider: opencode, permissionPolicy: once, streamLogDir: x}\n"
        "  - {name: b, provider: opencode, permission_policy: once, stream_log_dir: x}\n"
    )
    found = load_targets(tmp_path, {}, named=good)
    assert read_opencode_settings(found["a"]) == read_opencode_settings(found["b"])
    assert read_opencode_settings(found["a"]) == OpenCodeTargetSettings(
        permission_policy="once", stream_log_dir="x"
    )
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "targets:\n  - name: a\n    provider: opencode\n    tools: {bash: 1}\n"
        "    startupTimeoutSeconds: 0\n    modle: x\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_targets(tmp_path, {}, named=bad)
    told = str(caught.value)
    assert "bad.yaml:4: targets[0].tools.bash: expected true or false" in told
    assert "bad.yaml:5: targets[0].startupTimeoutSeconds: must be more than 0" in told
    assert "bad.yaml:6: targets[0].modle: unknown key; did you mean 'model'?" in told


@pytest.mark.spec("E01")
def test_the_documentation_has_every_setting() -> None:
    text = (Path(__file__).parents[3] / "docs" / "evals-targets.md").read_text()
    section = text.partition("## OpenCode as a target")[2].partition("\n## ")[0]
    assert [name for name in OPENCODE_SETTING_NAMES if f"`{name}`" not in section] == []


def verdict(told: OpenCodeTargetSettings, permission: str, pattern: str = "x") -> str:
    return strictest_action(session_rules(told), permission, (pattern,))


@pytest.mark.spec("E17")
@pytest.mark.spec("E19")
def test_what_changes_something_is_asked_and_tools_are_switched_by_rules() -> None:
    usual = OpenCodeTargetSettings()
    assert {verdict(usual, tool) for tool in ("edit", "bash", "external_directory")} == {"ask"}
    assert {verdict(usual, tool) for tool in ("webfetch", "websearch", "question")} == {"deny"}
    own = OpenCodeTargetSettings(
        permission={"bash": {"*": "ask", "git *": "allow"}, "write": "allow"}
    )
    assert verdict(own, "bash", "git status") == "allow"
    assert verdict(own, "bash", "rm x") == "ask"
    assert verdict(own, "edit") == "allow"
    assert verdict(OpenCodeTargetSettings(permission="allow"), "bash") == "allow"
    off = OpenCodeTargetSettings(
        tools={"bash": False, "webfetch": True}, permission={"bash": "allow"}
    )
    assert verdict(off, "bash") == "deny", "what is switched off stays off"
    assert verdict(off, "webfetch") == "ask"
    few = OpenCodeTargetSettings(
        tools={"*": False, "read": True, "edit": True}, permission={"edit": {"a/*": "allow"}}
    )
    assert verdict(few, "read") == "allow"
    assert (verdict(few, "edit", "a/b"), verdict(few, "edit", "b")) == ("allow", "ask")
    assert {verdict(few, tool) for tool in ("bash", "grep", "webfetch", "mcp_x")} == {"deny"}


@pytest.mark.spec("E17")
@pytest.mark.spec("E18")
def test_what_others_have_configured_is_asked_for_unless_the_target_allows_it() -> None:
    for others in ({"profile": "user"}, {"base_url": "http://127.0.0.1:1"}):
        told = read_opencode_settings(spec(**others))
        assert {verdict(told, name) for name in ("task", "mine_wipe", "doom_loop")} == {"ask"}
        assert (verdict(told, "plan_exit"), verdict(told, "question")) == ("deny", "deny")
        own = read_opencode_settings(
            spec(**others, permission={"task": "allow", "mine_*": "allow"})
        )
        assert {verdict(own, name) for name in ("task", "mine_wipe")} == {"allow"}
        off = read_opencode_settings(spec(**others, tools={"task": False}))
        assert verdict(off, "task") == "deny"


@pytest.mark.spec("E15")
@pytest.mark.spec("E16")
def test_roles_become_a_system_prompt_and_texts_and_files_links(tmp_path: Path) -> None:
    note, guide = tmp_path / "a note.md", tmp_path / "style.instructions.md"
    note.write_text("SECRET CONTENT\n")
    guide.write_text("SECRET CONTENT\n")
    case = an_attempt(
        tmp_path,
        InputMessage(role="system", text="You are terse."),
        InputMessage(role="user", text="What is 2+2?"),
        InputMessage(role="assistant", text="4"),
        InputMessage(role="user", text="And doubled?", files=(note,)),
        guidelines=(guide,),
    ).case
    said = opencode_prompt(case, "You are a tester.")
    assert said.system == "You are a tester.\n\nYou are terse."
    assert said.text == f"And doubled?\n[a note.md]({note.as_uri()})"
    first, *turns = said.before
    assert f"[style.instructions.md]({guide.as_uri()})" in first
    assert turns == ["[user]\nWhat is 2+2?\n\n", "[assistant]\n4\n\n"]
    assert said.links == (guide, note)
    assert "SECRET" not in repr(said)
    plain = opencode_prompt(an_attempt(tmp_path, "Just this").case, "System.")
    assert (plain.text, plain.system, plain.before) == ("Just this", "System.", ())


def test_a_log_has_no_keys_and_a_full_disk_ends_it_quietly(tmp_path: Path) -> None:
    heard = Heard()
    log = StreamLog(lambda: ("my-own-secret-value",))
    log.begin(tmp_path, an_attempt(tmp_path, "x"), heard)
    assert log.path
    log.write(b'{"a":"my-own-secret-value","b":"goent_' + b"x" * 40 + b'"}')
    assert log.path.read_text().splitlines()[1:] == ['{"a":"[redacted]","b":"[redacted]"}']
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size, hard))
    try:
        log.write(b"{}")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"{}")
    assert len(log.path.read_text().splitlines()) == 2
    (warning,) = heard.warnings
    assert "ends early: File too large" in warning


def part(**fields: object) -> MessagePart:
    return msgspec.convert(
        {"id": "p", "type": "text", "sessionID": "s", "messageID": "m", **fields}, MessagePart
    )


@pytest.mark.spec("E04")
def test_a_call_is_traced_however_far_it_came() -> None:
    state = {"status": "error", "input": {"a": 1}, "error": "broke", "time": {"start": 5, "end": 9}}
    failed = part(
        type="tool", callID="c1", tool="bash", state=msgspec.Raw(msgspec.json.encode(state))
    )
    running = part(id="q", type="tool", callID="c2", tool="read")
    aborted = {"status": "error", "error": "Tool execution aborted"}
    cut = part(id="r", type="tool", tool="x", state=msgspec.Raw(msgspec.json.encode(aborted)))
    message = ServerMessage(
        info=MessageInfo(id="m", role="assistant"), parts=(failed, running, cut)
    )
    one, two, three = traced_message(SessionMessage(message=message)).tool_calls
    assert (one.id, one.tool, one.status, one.output) == ("c1", "bash", "error", {"error": "broke"})
    assert (one.input, one.duration_ms) == ({"a": 1}, 4)
    assert (one.start_time, one.end_time) == (
        "1970-01-01T00:00:00.005+00:00",
        "1970-01-01T00:00:00.009+00:00",
    )
    assert (two.id, two.status, two.output, two.duration_ms) == ("c2", "unknown", None, None)
    assert three.status == "cancelled"


def test_what_grows_is_told_at_its_place_and_others_words_are_not() -> None:
    heard = Heard()
    growing = LiveTranscript("s", heard)
    for name, role in (("u", "user"), ("m", "assistant"), ("n", "assistant")):
        growing.apply(MessageUpdated(info=MessageInfo(id=name, role=role, session="s")))
    growing.apply(MessageUpdated(info=MessageInfo(id="x", role="assistant", session="other")))
    growing.apply(PartUpdated(part=part(text="One ")))
    growing.apply(PartDelta(session="s", message="m", part="p", field="text", delta="two"))
    growing.apply(PartDelta(session="s", message="m", part="unknown", field="text", delta="?"))
    growing.apply(PartUpdated(part=part(id="o", messageID="n", text="Three")))
    growing.report_changes()
    assert {place: said.content for place, said in heard.messages.items()} == {
        0: "One two",
        1: "Three",
    }
    heard.messages.clear()
    growing.report_changes()
    assert not heard.messages


def spoke(name: str, at: float, *begun: MessagePart) -> ServerMessage:
    info = MessageInfo(id=name, role="assistant", time=MessageTime(created=at))
    return ServerMessage(info=info, parts=begun)


def task(name: str, session: str, at: float) -> MessagePart:
    """A call with an id that another provider's call may have too."""
    state = {"metadata": {"sessionId": session}, "time": {"start": at}}
    encoded = msgspec.Raw(msgspec.json.encode(state))
    return part(id=name, type="tool", tool="task", callID=f"call-{name[-1]}", state=encoded)


def test_what_subagents_say_comes_after_the_call_that_made_them_whatever_came_first() -> None:
    """Two at once, one inside another, and one that is gone on with by a later call."""
    both = spoke("a", 1, task("p1", "left", 2), task("p2", "right", 2))
    said = {
        "right": [spoke("r1", 3, task("q1", "inner", 4)), spoke("r2", 6)],
        "left": [spoke("l1", 4), spoke("l2", 10)],
        "inner": [spoke("i1", 5)],
        "stranger": [spoke("s1", 5)],
        "own": [both, spoke("b", 8, task("p3", "left", 9)), spoke("c", 12)],
    }
    found = [(each.message.info.id, each.parent) for each in ordered_messages("own", said)]
    assert found == [
        ("a", None), ("l1", "call-1"), ("r1", "call-2"), ("i1", "call-1"), ("r2", "call-2"),
        ("b", None), ("l2", "call-3"), ("c", None),
    ]  # fmt: skip


class Replies(OpenCodeClient):
    """A client that remembers its answers and sends none."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    async def messages(
        self, session: str, *, limit: int | None = None, patience: float = 1
    ) -> list[ServerMessage]:
        """Two calls: one reads, one writes."""
        calls = (part(id=tool, type="tool", callID=tool, tool=tool) for tool in ("read", "write"))
        return [ServerMessage(info=MessageInfo(id="m", role="assistant"), parts=tuple(calls))]

    async def reply(self, question: str, reply: str, directory: str, message: str = "") -> None:
        self.sent.append((question, reply))
        if len(self.sent) == 1:
            raise ProtocolError("not heard")


@pytest.mark.anyio
@pytest.mark.spec("E17")
async def test_rules_and_links_decide_before_the_policy_and_all_is_written_down() -> None:
    told = OpenCodeTargetSettings(permission={"bash": {"*": "ask", "git *": "allow"}})
    heard, client = Heard(), Replies()
    permits = AttemptPermissions(session_rules(told), "reject", (Path("/suite/notes.md"),), heard)
    for name, permission, pattern, path, tool in (
        ("q1", "bash", "git status", "", "bash"),
        ("q1", "bash", "git status", "", "bash"),
        ("q2", "external_directory", "/suite/*", "/suite/notes.md", "read"),
        ("q3", "question", "*", "", "question"),
        ("q4", "external_directory", "/suite/*", "/suite/answers.md", "read"),
        ("q4", "external_directory", "/suite/*", "/suite/answers.md", "read"),
        ("q5", "external_directory", "/suite/*", "/suite/notes.md", "write"),
    ):
        question = PendingQuestion(
            id=name,
            session="s",
            permission=permission,
            patterns=(pattern,),
            metadata=QuestionSubject(filepath=path),
            tool=ToolReference(call=tool),
        )
        with suppress(ProtocolError):
            await permits.answer(question, client, "/work")
    assert client.sent == [
        *(("q1", "once"), ("q1", "once")),
        *(("q2", "once"), ("q3", "reject"), ("q4", "reject"), ("q5", "reject")),
    ]
    by = [decision.by for decision in heard.decisions]
    assert by == ["rule", "link", "rule", "policy", "policy"]
    assert permits.refusal is heard.decisions[3]
    assert all(decision.at for decision in heard.decisions)
