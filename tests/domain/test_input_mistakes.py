"""Wrong input is explained in the words of where it came from: arguments, options or keys."""

import msgspec
import pytest

from goent.domain.input_mistakes import ARGUMENTS, KEYS, OPTIONS, Surface, explain_mistake
from goent.domain.requests import (
    AnswerRequest,
    CostsRequest,
    OperationRequest,
    SpawnRequest,
    StopRequest,
    WaitRequest,
)
from goent.domain.swarm_messages import SwarmSpawnRequest
from goent.rpc.json_rpc import InvalidParams, decode_params

ARGUMENT_MISTAKES: list[tuple[type[OperationRequest], object, str]] = [
    (
        SpawnRequest,
        {"task": "x", "permissions": "all"},
        "permissions: unknown value 'all'; one of readonly, ask, edit, auto",
    ),
    (
        SpawnRequest,
        {"task": "x", "permissions": 5},
        "permissions: expected one of readonly, ask, edit, auto, not 5",
    ),
    (
        AnswerRequest,
        {"worker_id": "w", "permission_id": "p", "option": "yes"},
        "option: unknown value 'yes'; one of allow_once, allow_always, reject",
    ),
    (CostsRequest, {"per": "day"}, "per: unknown argument; one of by, project_only"),
    (SpawnRequest, {"task": "x", "modle": "y"}, "modle: unknown argument; did you mean 'model'?"),
    (SpawnRequest, {}, "task: is missing"),
    (SpawnRequest, [], "expected an object, not a list"),
    (SpawnRequest, {"task": "x", "timeout_s": -1}, "timeout_s: must be more than 0, not -1"),
    (SpawnRequest, {"task": "x", "timeout_s": "soon"}, "timeout_s: expected a number, not 'soon'"),
    (SpawnRequest, {"task": "x", "files": [{}]}, "files[0]: expected text, not an object"),
    (WaitRequest, {"worker_ids": []}, "worker_ids: must have at least 1 entry, not 0"),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a", "taks": "x"}]},
        "tasks[0].taks: unknown argument; did you mean 'task'?",
    ),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a", "task": "x"}, {"id": "b", "task": "x", "timeout_s": 0}]},
        "tasks[1].timeout_s: must be more than 0, not 0",
    ),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a", "task": "x", "method": "fax"}]},
        "tasks[0].method: unknown value 'fax'; one of acp, cli, serve, api, agent",
    ),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a b", "task": "x"}]},
        "tasks[0].id: must match ^[A-Za-z0-9][A-Za-z0-9_.-]*$, not 'a b'",
    ),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a", "task": "x"}], "swarm": "s" * 61},
        "swarm: must be at most 60 characters long, not 61",
    ),
    (
        SwarmSpawnRequest,
        {"tasks": [{"id": "a", "task": "x", "prompt": "y"}]},
        "tasks[0]: give task or prompt, not both: they mean the same",
    ),
]


def mistake(kind: type[OperationRequest], given: object) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, kind, strict=False)
    return raised.value


@pytest.mark.parametrize(("kind", "given", "explanation"), ARGUMENT_MISTAKES)
def test_an_argument_is_explained_with_its_place_and_what_is_allowed_there(
    kind: type[OperationRequest], given: object, explanation: str
) -> None:
    found = explain_mistake(mistake(kind, given), given, kind, ARGUMENTS)
    assert str(found) == explanation


@pytest.mark.parametrize(
    ("surface", "given", "explanation"),
    [
        (OPTIONS, {"task": "x", "timeout_s": 0}, "--timeout: must be more than 0, not 0"),
        (OPTIONS, {"task": "x", "budget_usd": -2}, "--budget-usd: must be more than 0, not -2"),
        (KEYS, {"task": "x", "timeout_s": 0}, "timeout_s: must be more than 0, not 0"),
        (KEYS, {"task": "x", "modle": 1}, "modle: unknown key; did you mean 'model'?"),
        (KEYS, {"task": {}}, "task: expected text, not a table"),
    ],
)
def test_each_surface_has_its_own_words(surface: Surface, given: object, explanation: str) -> None:
    found = explain_mistake(mistake(SpawnRequest, given), given, SpawnRequest, surface)
    assert str(found) == explanation


@pytest.mark.parametrize(
    ("params", "explanation"),
    [
        (b'{"if_idel": true}', "if_idel: unknown argument; did you mean 'if_idle'?"),
        (b'{"if_idle": "yes"}', "if_idle: expected true or false, not 'yes'"),
        (b"[]", "expected an object, not a list"),
    ],
)
def test_parameters_on_the_socket_are_explained_as_arguments(
    params: bytes, explanation: str
) -> None:
    with pytest.raises(InvalidParams) as raised:
        decode_params(msgspec.Raw(params), StopRequest)
    assert raised.value.message == f"invalid params: {explanation}"


def test_the_wrong_entry_of_a_table_is_named() -> None:
    given = {"a": 1, "b": "two"}
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, dict[str, int])
    found = explain_mistake(raised.value, given, dict[str, int], KEYS)
    assert str(found) == "b: expected a whole number, not 'two'"
