import pytest

from goent.sandbox import confinement

pytestmark = pytest.mark.anyio


async def test_a_trial_without_an_answer_is_made_again_and_does_not_decide_for_good(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(confinement, "_found_levels", {})
    monkeypatch.setattr(confinement, "_timed_out_trials", {})
    with monkeypatch.context() as busy:
        busy.setattr(confinement, "TRIAL_S", 0.0)
        found = await confinement.find_level("auto")
        assert found.name == "none"
        assert "no namespace: no answer within 0 s" in found.reason
    found = await confinement.find_level("auto")
    assert (found.name, found.reason) == ("namespace", "")


async def test_a_level_that_never_answers_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(confinement, "_found_levels", {})
    monkeypatch.setattr(confinement, "_timed_out_trials", {})
    with monkeypatch.context() as busy:
        busy.setattr(confinement, "TRIAL_S", 0.0)
        for _ in range(confinement.MAX_TRIALS):
            await confinement.find_level("landlock")
    assert (await confinement.find_level("landlock")).name == "none"
