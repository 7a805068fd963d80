"""What a case says must stay one word: placeholders that something around them would undo are refused."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goent.evals.eval_ports import CaseAttempt, SilentObserver, TargetError
from goent.evals.suites import EvalCase, InputMessage, TargetSpec
from goent.evals.targets.command_target import CliTarget, cli_mistakes


def told(command: str) -> list[str]:
    return [words for _, words in cli_mistakes({"command": f": > {{OUTPUT_FILE}}; {command}"})]


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ('agent "{PROMPT}"', "take the quotes around {PROMPT} away"),
        ("agent '{PROMPT}'", "take the quotes around {PROMPT} away"),
        ('agent --ask="say: {PROMPT}"', "take the quotes around {PROMPT} away"),
        ('agent "a \\" {PROMPT}"', "take the quotes around {PROMPT} away"),
        ('agent "$(echo "it is {EVAL_ID}")"', "take the quotes around {EVAL_ID} away"),
        ('agent "$(echo x) {FILES}"', "take the quotes around {FILES} away"),
        ("agent 'it'\\''s {EVAL_ID}'", "take the quotes around {EVAL_ID} away"),
        ("(agent ')' \"{PROMPT}\")", "take the quotes around {PROMPT} away"),
        ("# don't\nagent '{PROMPT}'", "take the quotes around {PROMPT} away"),
        ("agent `echo {PROMPT}`", "write $(…) instead"),
        ('agent "`echo {PROMPT}`"', "write $(…) instead"),
        ("agent \\{PROMPT}", "a backslash before it"),
        ("agent # {PROMPT}\ntrue", "take {PROMPT} out of it"),
        ("cat <<END\n{PROMPT}\nEND\ntrue", "in a here-document"),
        ("cat <<-'END' | agent\n\tit's {PROMPT}\n\tEND\ntrue", "in a here-document"),
        ("cat <<'{EVAL_ID}'", "in a here-document"),
        ("agent $(( {EVAL_ID} + 1 ))", "in arithmetic"),
        ("agent $(( x ){EVAL_ID}): ))", "in arithmetic"),
    ],
)
def test_a_placeholder_whose_quoting_would_be_undone_is_a_mistake(
    command: str, remedy: str
) -> None:
    (mistake,) = told(command)
    assert "is already quoted by go-ent" in mistake and remedy in mistake


@pytest.mark.parametrize(
    "command",
    [
        "agent {PROMPT} --id={EVAL_ID}.json {FILES}",
        'agent "$(cat {PROMPT_FILE})"',
        'bash -c "cat {PROMPT_FILE} > {OUTPUT_FILE}"',
        'agent "$(cat \'/a b\' {PROMPT_FILE} | tr "\'" x)" {PROMPT}',
        "agent 'it is' \"so\" {PROMPT}",
        "agent it\\'s {PROMPT} \\\"{EVAL_ID}",
        "(cd /x && agent {PROMPT})",
        "# don't\nagent {PROMPT} a#b'c' {EVAL_ID}",
        "cat <<END\nit's\nEND\nagent {PROMPT}",
        "agent $((1 << 2)) $# ${#HOME} {PROMPT}\nagent {PROMPT}",
        'agent "try-{ATTEMPT}"',
        'agent "((" {PROMPT}',
    ],
)
def test_a_placeholder_that_stays_one_word_is_none(command: str) -> None:
    assert told(command) == []


NASTY = "x'\"; touch pwned; `touch pwned` $(touch pwned)\ntouch pwned\nE\ntouch pwned #'\"\n)touch pwned"
PIECES = (
    *("'", '"', "`", "\\", "#", "\n", " ", "\t", "(", "$(", ")", "((", "$((", "))", "${x:-", "}"),
    *("{PROMPT}", "{PROMPT}", "{PROMPT}", "x", ": ", "echo ", "<<E", "<<-'E'", "E", ";", "|", "&&"),
)


SOME = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)


@settings(max_examples=150)
@given(SOME, SOME)
def test_no_command_that_is_accepted_runs_what_a_case_says(before: str, after: str) -> None:
    command = f"{before}{{PROMPT}}{after}"
    if told(command):
        return
    with TemporaryDirectory() as folder:
        place = Path(folder)
        written = {"command": f": > {{OUTPUT_FILE}}; {command}", "cwd": folder}
        target = CliTarget(TargetSpec(name="t", kind="cli", settings=written), {"PATH": "/bin"})
        case = EvalCase(
            id="one", suite="s", form="v4", input=(InputMessage(role="user", text=NASTY),)
        )
        with suppress(TargetError):  # most of them are nothing that a shell could run
            anyio.run(
                target.invoke, CaseAttempt(case=case, target="t", cwd=place), SilentObserver()
            )
        assert not (place / "pwned").exists()
