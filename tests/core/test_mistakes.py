"""Wrong arguments, explained."""

import msgspec
import pytest

from goent.domain.requests import AnswerRequest, CostsRequest, OperationRequest, SpawnRequest
from goent.operations.operation_table import explain_bad_argument


@pytest.mark.parametrize(
    ("request_", "given", "said"),
    [
        (
            SpawnRequest,
            {"task": "x", "permissions": "all"},
            "permissions: 'all' is none of readonly, ask, edit, auto",
        ),
        (
            SpawnRequest,
            {"task": "x", "isolation": "vm"},
            "isolation: 'vm' is none of auto, worktree, copy, shared, dedicated",
        ),
        (
            AnswerRequest,
            {"worker_id": "w", "permission_id": "p", "option": "yes"},
            "option: 'yes' is none of allow_once, allow_always, reject",
        ),
        (CostsRequest, {"by": "hour"}, "by: 'hour' is none of provider, model, worker, day"),
        (CostsRequest, {"per": "day"}, "there is no argument 'per', only by, project_only"),
        (SpawnRequest, {}, "task: is missing"),
        (SpawnRequest, {"task": "x", "timeout_s": -1}, "timeout_s: must be more than 0, not -1"),
        (SpawnRequest, {"task": 5}, "task: expected text, not 5"),
    ],
)
def test_where_there_is_a_choice_it_is_told(
    request_: type[OperationRequest], given: dict[str, object], said: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(given, request_, strict=False)
    assert explain_bad_argument(raised.value, request_, given) == said
