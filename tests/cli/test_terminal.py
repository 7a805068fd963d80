"""Somebody sits at a terminal: keys, Ctrl-C, and a screen that moves."""

import json

import pytest
from desk import OpenDesk, Person

from goent.domain.events import PlanUpdated
from goent.domain.settings import LimitSettings
from goent.domain.types import PlanEntry
from goent.testing.driver import Pause, question, say


def test_a_question_is_answered_by_one_key(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), say("thanks")]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("? bash: make test")
        person.sees("[y] yes, once")
        person.types("y")
        person.sees("allow_once (by cli)")
        person.sees("thanks")
        assert person.leaves() == 0


def test_no_means_no(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), say("never said")]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("[n] no")
        person.types("n")
        assert person.leaves() == 1
        assert "permission_denied" in person.seen
        assert "never said" not in person.seen


def test_words_can_be_left_again_and_nothing_is_sent(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), say("thanks")]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("[i] no, but …")
        person.types("i")
        person.sees("no, do this instead:")
        person.types("n y a \x1b[D größer")
        person.sees("größer▏")
        person.types("\x1b")
        person.seen = ""
        person.sees("[y] yes, once")
        person.types("y")
        person.sees("allow_once (by cli)")
        assert person.leaves() == 0
        assert desk.driver.told == []


def test_a_key_for_one_question_does_not_answer_the_next(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), question("q2", detail="rm -rf ."), say("x")]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("[y] yes, once")
        person.types("yyyy")
        person.sees("? bash: rm -rf .")
        person.seen = ""
        person.sees("[y] yes, once")
        person.types("n")
        person.sees("reject (by cli)")
        assert person.leaves() == 1


def test_what_the_agent_cannot_be_told_is_said(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), say("thanks")]) as desk:
        desk.driver.takes_words = False
        worker = desk.detached()
        desk.until(worker, "waiting")
        ended = desk.go_ent("answer", worker, "reject", "--message", "use make check")
        assert (ended.code, f"go-ent prompt {worker}" in ended.err) == (0, True)
        desk.until(worker, "failed")
        assert json.loads(desk.go_ent("status", worker, "--json").out)["open"] is True


def test_where_nobody_sits_the_whole_question_is_printed(open_desk: OpenDesk) -> None:
    edit = "a.py\n" + "\n".join(f"+line {n}" for n in range(300))
    asked = question("q1", "edit", edit, reason="a guarded file")
    with open_desk(lambda _: [asked, say("x")], permission_timeout_s=0.2) as desk:
        ended = desk.go_ent("run", "do it")
        assert f"? edit: {edit}\n  a guarded file\n" in ended.out
        assert "answer with: go-ent answer w-" in ended.err and "+line 299; answer" in ended.err


def test_an_answer_from_elsewhere_wins_if_it_comes_first(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [question("q1"), say("thanks")]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("[y] yes, once")
        assert desk.go_ent("answer", "last", "allow_always").code == 0
        person.sees("allow_always (by cli)")
        assert person.leaves() == 0


@pytest.mark.spec("P25")
def test_ctrl_c_cancels_the_worker_and_shows_what_it_did(open_desk: OpenDesk) -> None:
    plan = PlanUpdated(entries=(PlanEntry(text="the first half", status="in_progress"),))
    with open_desk(lambda _: [say("so far so good\n"), plan, Pause()]) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("the first half")
        person.types("\x03")
        assert person.leaves() == 130
        assert "cancelling" in person.seen
        assert "cancelled" in person.seen
        assert "Traceback" not in person.seen


def test_a_second_ctrl_c_leaves_at_once(open_desk: OpenDesk) -> None:
    deaf = LimitSettings(cancel_grace_s=3)
    with open_desk(lambda _: [say("deaf\n"), Pause(deaf=True)], deaf) as desk:
        person = Person("run", "do it", cwd=desk.project.folder)
        person.sees("deaf")
        person.types("\x03")
        person.sees("cancelling")
        person.types("\x03")
        assert person.leaves() == 130
        assert "may still be running: `go-ent cancel w-" in person.seen
        assert "Traceback" not in person.seen
