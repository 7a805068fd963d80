import pytest

from goent.sandbox import sandbox_level

pytestmark = pytest.mark.anyio


async def test_a_trial_without_an_answer_is_made_again_and_does_not_decide_for_good(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(sandbox_level, "_found_levels", {})
    monkeypatch.setattr(sandbox_level, "_timed_out_trials", {})
    with monkeypatch.context() as busy:
        busy.setattr(sandbox_level, "TRIAL_S", 0.0)
        found = await sandbox_level.find_level("auto")
        assert found.name == "none"
        assert "no namespace: no answer within 0 s" in found.reason
    found = await sandbox_level.find_level("auto")
    assert (found.name, found.reason) == ("namespace", "")


async def test_a_level_that_never_answers_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox_level, "_found_levels", {})
    monkeypatch.setattr(sandbox_level, "_timed_out_trials", {})
    with monkeypatch.context() as busy:
        busy.setattr(sandbox_level, "TRIAL_S", 0.0)
        for _ in range(sandbox_level.MAX_TRIALS):
            await sandbox_level.find_level("landlock")
    assert (await sandbox_level.find_level("landlock")).name == "none"
