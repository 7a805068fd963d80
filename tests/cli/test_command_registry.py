"""The table of commands says what the commands themselves say, and imports none before it is needed."""

import subprocess
import sys

import pytest

from goent.cli.main import COMMANDS, CommandEntry, CommandStub, command_tree


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.path)
def test_a_help_line_is_the_first_paragraph_of_the_commands_own_help(entry: CommandEntry) -> None:
    about = (CommandStub(entry).load().help or "").partition("\n\n")[0]

    assert about.replace("\n", " ") == entry.help


def test_a_mistyped_command_is_answered_without_importing_any() -> None:
    code = (
        "import sys; from goent.cli.main import run_cli; run_cli(['runn']); "
        "print([name for name in sys.modules if name.endswith('_commands')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.strip() == "[]"
    assert "Did you mean 'run'?" in ended.stderr


def test_every_group_of_the_table_is_a_command_of_it() -> None:
    names = {entry.path for entry in COMMANDS}

    assert {entry.group for entry in COMMANDS if entry.group} <= names
    assert set(command_tree().commands) == {entry.name for entry in COMMANDS if not entry.group}
