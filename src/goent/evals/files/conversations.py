"""What is said in a conversation, turn by turn, and how is each turn graded?"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from goent.config.fields import Fields
from goent.evals.files.graders import LISTS, implicit, read_graders
from goent.evals.files.messages import read_expected, read_input, split_guidelines, with_files
from goent.evals.files.texts import Source
from goent.evals.files.trees import told
from goent.evals.suites import Conversation, Turn

_ONLY: Final = ("turns", "aggregation", "on_turn_failure", "window_size")


def read_conversation(
    fields: Fields, source: Source, files: Sequence[Path]
) -> tuple[Conversation | None, tuple[Path, ...]]:
    """With the instructions that it names. None for a case that is none; `files` go with its first turn."""
    if fields.choice("mode", ("conversation",), None) is None:
        for key in _ONLY:
            if fields.has(key) and not fields.has("mode"):
                fields.mistake(key, "belongs to a conversation; say `mode: conversation` beside it")
        return None, ()
    turns = fields.rows("turns", lambda turn: _turn(turn, source))
    if not turns:
        fields.mistake("turns", "a conversation has at least one; write turns: [{input: …}]")
    guidelines: dict[Path, None] = {}
    split: list[Turn] = []
    for number, turn in enumerate(turns):
        said = turn.input if number else with_files(turn.input, files)
        kept, instructions = split_guidelines(said, source.guidelines(turn.place.file))
        guidelines |= dict.fromkeys(instructions)
        split.append(replace(turn, input=kept))
    conversation = Conversation(
        turns=tuple(split),
        aggregation=fields.choice("aggregation", ("mean", "min", "max"), "mean"),
        on_failure=fields.choice("on_turn_failure", ("continue", "stop"), "continue"),
        window=fields.integer("window_size", None, least=1),
    )
    return conversation, tuple(guidelines)


def _turn(fields: Fields, source: Source) -> Turn:
    if not fields.has("input"):
        fields.mistake("input", "is missing; say what the agent is told in this turn")
    said = read_input(fields.node("input"), source)
    if said and said[-1].role != "user":
        fields.mistake("input", "ends with no message of the user: nothing is asked")
    expected = read_expected(fields.node("expected_output"), source)
    key = fields.one_of(*LISTS)
    graders = read_graders(fields.node(key) if key else None, source)
    if expected and not key:
        graders = (implicit(fields.place),)
    return Turn(input=said, expected=expected, graders=graders, place=told(fields.place))
