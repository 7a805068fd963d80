"""Keys and other secrets in a run: who sees them, and that nobody is told."""

from pathlib import Path

import pytest
from eval_desk import EvalDesk


@pytest.fixture
def desk(tmp_path: Path) -> EvalDesk:
    return EvalDesk(tmp_path)


def test_a_key_that_a_command_says_is_told_nowhere(desk: EvalDesk) -> None:
    key = "sk-ant-" + "a1B2" * 12
    desk.env["ANTHROPIC_API_KEY"] = key
    one = {
        "name": "one",
        "provider": "cli",
        "env": {"ANTHROPIC_API_KEY": "${{ ANTHROPIC_API_KEY }}"},
        "command": "echo $ANTHROPIC_API_KEY >&2; exit 1; : {OUTPUT_FILE}",
    }
    desk.write(".goent/targets.yaml", {"targets": [one]})

    said = desk.go_ent("run", desk.suite(["a"]), "--out", desk.out)

    assert said.code == 3
    assert key not in said.out + said.err
    assert not any(key in path.read_text() for path in desk.out.rglob("*.json*"))


SAYS_IT = "echo $MY_TOKEN >&2; printf hello-%s $MY_TOKEN > {OUTPUT_FILE}"


@pytest.mark.parametrize("command", [SAYS_IT, f"{SAYS_IT}; exit 1"], ids=["answers", "fails"])
def test_what_a_targets_own_secret_is_is_told_nowhere(desk: EvalDesk, command: str) -> None:
    secret = "a-word-of-no-known-shape"
    (desk.folder / ".env").write_text(f"SECRET={secret}\n")
    env = {"MY_TOKEN": "${{ SECRET }}"}
    one = {"name": "one", "provider": "cli", "env": env, "command": command}
    desk.write(".goent/targets.yaml", {"targets": [one]})
    checks = [{"type": "code-grader", "command": ["sh", "-c", "cat; exit 0"]}]

    said = desk.go_ent("run", desk.suite(["a"], assertions=checks), "--out", desk.out)
    again = desk.go_ent("grade", desk.out, "--out", desk.folder / "again")

    written = [path for path in desk.folder.rglob("*.json*") if path.is_file()]
    assert len(desk.rows()) == 1, said.err
    assert any("[redacted]" in path.read_text() for path in written)
    assert not any(secret in path.read_text() for path in written)
    assert secret not in said.out + said.err + again.out + again.err


def test_a_command_sees_no_key_of_a_provider_that_its_target_does_not_name(desk: EvalDesk) -> None:
    desk.env |= {"ANTHROPIC_API_KEY": "sk-of-the-user", "OPENAI_API_KEY": "sk-other", "MINE": "1"}
    told = "echo ${ANTHROPIC_API_KEY-none} ${OPENAI_API_KEY-none} $MINE > {OUTPUT_FILE}"
    check = {"command": "test -z $ANTHROPIC_API_KEY"}
    one = {"name": "one", "provider": "cli", "command": told, "healthcheck": check}
    one["env"] = {"OPENAI_API_KEY": "${{ OPENAI_API_KEY }}"}
    desk.write(".goent/targets.yaml", {"targets": [one]})
    wants = [{"type": "equals", "value": "none sk-other 1"}]

    said = desk.go_ent("run", desk.suite(["a"], assertions=wants), "--out", desk.out)

    assert said.code == 0, said.out + said.err


def test_where_nobody_can_say_what_a_key_is_no_command_is_run(desk: EvalDesk) -> None:
    desk.targets(one="echo hello > {OUTPUT_FILE}")
    (desk.folder / ".goent" / "config.yaml").write_text("providers: 7\n")

    said = desk.go_ent("run", desk.suite(["a"]), "--out", desk.out)

    assert said.code == 2
    assert "config.yaml:1" in said.err
