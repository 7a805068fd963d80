"""What is a turn of a conversation, as a case of its own?"""

from collections.abc import Sequence

from msgspec.structs import replace

from goent.evals.suites import Case, Conversation, Said


def turn_of(case: Case, talk: Conversation, number: int, answers: Sequence[str]) -> Case:
    """With all that was said before it. `number` counts from 0; `answers` are the agent's, of the turns before."""
    said = list(case.input)
    for turn, answer in zip(talk.turns[:number], answers, strict=False):
        said += [*turn.input, Said(role="assistant", text=answer)]
    said += talk.turns[number].input
    return _as_case(case, talk, number, _windowed(said, talk.window))


def news_of(case: Case, talk: Conversation, number: int) -> Case:
    """With no more than what is new in it, for who remembers the rest."""
    said = talk.turns[number].input
    if number == 0:
        return _as_case(case, talk, number, (*case.input, *said))
    return replace(_as_case(case, talk, number, said), guidelines=())


def whole_of(case: Case) -> Case:
    """All of it, for the graders that are not of one turn."""
    return replace(case, input=case.everything_said, conversation=None)


def _as_case(case: Case, talk: Conversation, number: int, said: Sequence[Said]) -> Case:
    turn = talk.turns[number]
    return replace(
        case,
        id=f"{case.id}/turn-{number + 1}",
        input=tuple(said),
        expected=turn.expected,
        graders=turn.graders,
        conversation=None,
    )


def _windowed(said: Sequence[Said], window: int | None) -> Sequence[Said]:
    """So many exchanges of two messages, as AgentV counts them; what the system says always stays."""
    if window is None:
        return said
    spoken = [one for one in said if one.role != "system"][-2 * window :]
    return [*(one for one in said if one.role == "system"), *spoken]
