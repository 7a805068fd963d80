"""What a yes for the whole session covers, when it is given to a command."""

import pytest

from goent.agent.tools.bash_tool import command_need, first_words


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("ls", "ls"),
        ("ls -la src", "ls"),
        ("./run.sh --all", "./run.sh"),
        ("pytest -q tests/a.py", "pytest"),
        ("git status", "git status"),
        ("git commit -m 'a; b && c'", "git commit"),
        ('git commit -m "fix: all"', "git commit"),
        ("npm run build", "npm run"),
        ("make test", "make test"),
        ("make", "make"),
        ("python scripts/x.py --fast", "python scripts/x.py"),
        ("/usr/bin/git log", "/usr/bin/git log"),
        ("echo *", "echo"),
    ],
)
def test_a_simple_command_is_covered_by_its_first_words(command: str, first: str):
    assert first_words(command) == first
    need = command_need(command, unconfined=False)
    assert need.patterns == (command,)
    assert need.always == (f"{first} *",)
    assert not need.exact


@pytest.mark.parametrize(
    "command",
    [
        "ls; rm -rf .",
        "ls && true",
        "ls || true",
        "ls | sh",
        "ls & rm x",
        "ls\nrm x",
        "echo $(rm x)",
        "echo `rm x`",
        'echo "$(rm x)"',
        'echo "`rm x`"',
        "echo $HOME",
        "echo hi > file",
        "cat < file",
        "(ls)",
        "{ ls; }",
        "ls \\; rm",
        "echo 'unclosed",
        "LD_PRELOAD=./x ls",
        "'ls' x",
        '"git" status',
        "git 'status'",
        "git -c alias.x='!sh' x",
        "python -c 'print(1)'",
        "env ls",
        "sudo ls",
        "/usr/bin/env ls",
        "bash script",
        "xargs rm",
        "find . -delete",
        "find . -name x",
        "rm file",
        "curl example.invalid",
        "docker run -v /:/host alpine",
        "coproc ls",
        "eval ls",
        ". ./env.sh",
        "",
    ],
)
def test_of_what_may_do_more_only_the_very_same_is_covered(command: str):
    need = command_need(command, unconfined=False)
    assert need.always == (command,)
    assert need.exact


def test_space_around_a_command_is_not_part_of_it():
    assert command_need(" ls -l\n", unconfined=False) == command_need("ls -l", unconfined=False)


def test_a_yes_to_a_confined_command_is_none_to_an_unconfined_one():
    need = command_need("ls", unconfined=True)
    assert need.patterns == need.always == ("[unconfined] ls",)
    assert need.exact
