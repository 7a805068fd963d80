"""What an attempt on the real `opencode serve` may do: files that are linked, permissions, subagents, tools."""

import re
from pathlib import Path

import pytest
from eval_opencode import Evaluation, Heard, an_attempt
from sandboxed import eval_commands

from goent.evals.eval_ports import TargetError
from goent.evals.suites import EvalCase, InputMessage, WorkspaceSpec
from goent.evals.workspaces.attempt_workspaces import open_workspaces

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


@pytest.mark.spec("E16")
async def test_a_linked_file_may_be_read_and_its_neighbours_may_not(
    shared: Evaluation, cwd: Path
) -> None:
    outside = shared.project
    note = outside / "note.md"
    note.write_text("remember the milk\n")
    (outside / "answers.md").write_text("42\n")
    heard = Heard()
    attempt = an_attempt(cwd, InputMessage(role="user", text="read note.md", files=(note,)))
    trace = await shared.target().invoke(attempt, heard)
    assert "remember the milk" in str(trace.calls[0].output)
    assert [(d.permission, d.by) for d in trace.permissions] == [("external_directory", "link")]
    with pytest.raises(TargetError, match=f"external_directory.*{re.escape(str(outside))}"):
        await shared.attempt(cwd, "read answers.md")


@pytest.mark.spec("E16")
@pytest.mark.spec("E17")
async def test_a_linked_file_may_not_be_written(shared: Evaluation, cwd: Path) -> None:
    note = shared.project / "note.md"
    note.write_text("remember the milk\n")
    attempt = an_attempt(cwd, InputMessage(role="user", text="rewrite note.md", files=(note,)))
    with pytest.raises(TargetError, match="permission 'external_directory' was refused"):
        await shared.target(permission={"edit": "allow"}).invoke(attempt, Heard())
    assert note.read_text() == "remember the milk\n"


async def test_a_shell_finds_the_history_and_commits_to_it(
    shared: Evaluation, tmp_path: Path
) -> None:
    """The objects are borrowed from go-ent's own record, which a command cannot see otherwise."""
    template = tmp_path / "template"
    template.mkdir()
    (template / "file.txt").write_text("one\n")
    said = (InputMessage(role="user", text="x"),)
    case = EvalCase(
        id="c", suite="s", form="v4", input=said, workspace=WorkspaceSpec(template=template)
    )
    commands = eval_commands(shared.environ, root=shared.workspaces)
    async with (
        open_workspaces(commands) as spaces,
        spaces.space(case, target="t", trial=1, number=0) as space,
    ):
        trace = await shared.attempt(space.path, "commit", permission_policy="once")
        assert str(trace.calls[0].output).startswith("mine\nThe beginning of s/c"), trace.calls
        assert (space.path / "log.txt").read_text().startswith("The beginning of s/c")


@pytest.mark.spec("E17")
async def test_a_permission_that_is_refused_fails_the_attempt_and_is_named(
    shared: Evaluation, cwd: Path
) -> None:
    heard = Heard()
    with pytest.raises(TargetError, match="permission 'bash' was refused for 'echo out'") as caught:
        await shared.attempt(cwd, "run a command", heard)
    assert (caught.value.kind, caught.value.retryable) == ("permission_denied", False)
    (decision,) = heard.decisions
    assert (decision.permission, decision.patterns) == ("bash", ("echo out",))
    assert (decision.decision, decision.by) == ("reject", "policy")
    assert heard.messages[0].tool_calls[0].status == "error"
    assert heard.usage
    trace = await shared.attempt(cwd, "run a command", permission_policy="once")
    assert trace.answer == "Ran."
    assert [d.decision for d in trace.permissions] == ["once"]
    trace = await shared.attempt(cwd, "run a command", permission_policy="always")
    assert [d.decision for d in trace.permissions] == ["always"]


async def test_a_link_does_not_lead_out_of_what_a_target_may_write(
    shared: Evaluation, cwd: Path, tmp_path: Path
) -> None:
    (cwd / "away").symlink_to(tmp_path)
    with pytest.raises(TargetError, match="permission 'external_directory' was refused"):
        await shared.attempt(cwd, "write through a link", permission={"edit": "allow"})
    assert not (tmp_path / "made.txt").exists()


@pytest.mark.spec("E17")
async def test_a_subagent_is_held_to_the_same_policy(shared: Evaluation, cwd: Path) -> None:
    heard = Heard()
    with pytest.raises(TargetError, match="permission 'edit' was refused"):
        await shared.attempt(cwd, "delegate writing", heard)
    assert not (cwd / "made.txt").exists()
    asking, refused = heard.messages[0].tool_calls[0], heard.messages[1]
    assert (refused.parent, refused.tool_calls[0].tool) == (asking.id, "write")
    assert heard.decisions[0].call == refused.tool_calls[0].id
    heard = Heard()
    trace = await shared.attempt(cwd, "delegate writing", heard, permission_policy="once")
    assert trace.answer == "Delegated."
    assert (cwd / "made.txt").read_text() == "one\n"
    (task,) = trace.calls
    called = [(depth, call.tool, call.status) for depth, call in trace.all_calls]
    assert called == [
        (0, "task", "ok"), (1, "write", "ok"), (1, "read", "error"), (1, "bash", "ok"),
    ]  # fmt: skip
    said = [(message.parent, message.content) for message in trace.messages]
    assert said == [
        (None, ""), (task.id, "I begin. "), (task.id, ""), (task.id, ""), (task.id, "All done."),
        (None, "Delegated."),
    ]  # fmt: skip
    assert tuple(heard.messages[place] for place in sorted(heard.messages)) == trace.messages
    assert trace.llm_calls == 6, "those of the subagent count"


@pytest.mark.spec("E19")
async def test_a_tool_that_is_off_is_not_offered(shared: Evaluation, cwd: Path) -> None:
    await shared.attempt(cwd, "say hello")
    request = shared.models.calls[-1].request
    assert request
    assert {"read", "glob", "grep", "edit", "write", "bash", "task"} <= set(request.tools)
    assert not {"webfetch", "websearch", "question"} & set(request.tools)
    await shared.attempt(cwd, "say hello", tools={"bash": False, "write": False, "webfetch": True})
    request = shared.models.calls[-1].request
    assert request
    assert not {"bash", "write", "edit"} & set(request.tools)
    assert "webfetch" in request.tools
    await shared.attempt(cwd, "say hello", tools={"*": False, "read": True})
    request = shared.models.calls[-1].request
    assert request
    assert set(request.tools) == {"read"}
