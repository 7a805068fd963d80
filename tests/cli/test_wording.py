"""What the daemon and the router say, in the words of the terminal."""

import pytest

from goent.cli.daemon_client import terminal_words
from goent.cli.labels import route_reason, token_words
from goent.cli.main import run_cli

SURE = "the configured default; the task is fix, medium, 1 token of context"
GUESS = "the configured default; the task is probably fix, medium, 1 token of context"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("cancel it, or pass queue: true", "cancel it, or pass --queue"),
        ("it is closed; spawn another one", "it is closed; start another one with `go-ent run`"),
        ("worker_list (`go-ent ps`) shows them", "`go-ent ps` shows them"),
        ("`swarm_retry` of that", "`go-ent swarm retry` of that"),
        ("no worker_id is given", "no worker_id is given"),
    ],
)
def test_a_tool_is_named_as_the_command(message: str, said: str) -> None:
    assert terminal_words(message) == said


@pytest.mark.parametrize(
    ("reason", "verbose", "said"),
    [
        (SURE, True, SURE),
        (SURE, False, "the configured default"),
        (GUESS, True, "the configured default"),
        ("asked for", True, "asked for"),
    ],
)
def test_what_a_task_was_taken_for_is_shown_on_request_and_if_sure(
    reason: str, verbose: bool, said: str
) -> None:
    assert route_reason(reason, verbose=verbose) == said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--timeout", "-1"), "--timeout: must be more than 0, not -1"),
        (("--budget-usd", "nan"), "--budget-usd: must be a finite number, not nan"),
    ],
)
def test_a_bound_is_a_finite_number_above_zero(
    options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["run", "x", *options]) == 2
    assert capsys.readouterr().err == f"go-ent: {said}\n"


def test_one_token_is_not_plural() -> None:
    assert [token_words(count) for count in (1, 1200)] == ["1 token", "1,200 tokens"]
