"""What an OpenCode and its subagents say is on disk while they say it: in its order, and once."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from eval_stage import attempt_at
from run_stage import Watched

from goent.evals.runner.attempt_recorder import AttemptRecorder, TraceLine
from goent.evals.runner.run_folder import STREAM_FILE, StoredRun
from goent.evals.targets.opencode_transcript import LiveTranscript
from goent.evals.traces import TargetFailure, TracedMessage
from goent.opencode.event_stream import MessageUpdated, PartUpdated
from goent.opencode.server_api import MessageInfo, MessagePart, MessageTime, ServerMessage

OUTPUT = "x" * 10_000


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[AttemptRecorder]:
    made = AttemptRecorder(attempt_at("say", tmp_path), StoredRun(tmp_path), "one", Watched())
    yield made
    made.close()


def read_back(stream: Path) -> list[TracedMessage]:
    """As somebody reads it after a kill."""
    order: list[int] = []
    said: dict[int, TracedMessage] = {}
    for line in stream.read_bytes().splitlines():
        told = msgspec.json.decode(line, type=TraceLine)
        if told.number is None or told.message is None:
            continue
        if told.number not in said:
            order.append(told.number)
        if told.before is not None:
            order.remove(told.number)
            order.insert(order.index(told.before), told.number)
        said[told.number] = told.message
    return [said[number] for number in order]


def info(name: str, session: str, at: float = 0) -> MessageInfo:
    return MessageInfo(id=name, role="assistant", session=session, time=MessageTime(created=at))


def text(message: str, words: str) -> MessagePart:
    return MessagePart(id=f"p-{message}", type="text", session="", message=message, text=words)


def call(message: str, name: str, tool: str, state: object) -> MessagePart:
    encoded = msgspec.Raw(msgspec.json.encode(state))
    return MessagePart(
        id=name, type="tool", session="", message=message, tool=tool, call=name, state=encoded
    )


def contents(recording: AttemptRecorder, tmp_path: Path) -> list[object]:
    """The same from memory and from disk."""
    kept = recording.partial_trace(TargetFailure(kind="timeout", message="")).messages
    assert read_back(tmp_path / "one" / STREAM_FILE) == list(kept)
    return [message.content for message in kept]


def test_a_message_that_the_stream_missed_is_told_at_its_own_place(
    recording: AttemptRecorder, tmp_path: Path
) -> None:
    growing = LiveTranscript("own", recording)
    for name in ("b", "d"):
        growing.apply(MessageUpdated(info=info(name, "own")))
        growing.apply(PartUpdated(part=text(name, name)))
    growing.report_changes()
    growing.replace_session(
        "own", [ServerMessage(info=info(name, "own"), parts=(text(name, name),)) for name in "abc"]
    )
    growing.report_changes()
    assert contents(recording, tmp_path) == ["a", "b", "c", "d"]


def test_subagents_at_work_at_once_are_told_in_order_and_each_message_once(
    recording: AttemptRecorder, tmp_path: Path
) -> None:
    growing = LiveTranscript("own", recording)
    growing.apply(MessageUpdated(info=info("own-0", "own")))
    growing.apply(PartUpdated(part=text("own-0", "begin")))
    for child in ("s0", "s1", "s2"):
        state = {"metadata": {"sessionId": child}, "time": {"start": 1}}
        growing.apply(PartUpdated(part=call("own-0", child, "task", state)))
    growing.report_changes()
    for at in range(20):
        for child in ("s0", "s1", "s2"):
            name = f"{child}-{at}"
            growing.apply(MessageUpdated(info=info(name, child, at + 2)))
            growing.apply(PartUpdated(part=text(name, name)))
            done = {"status": "completed", "output": OUTPUT}
            growing.apply(PartUpdated(part=call(name, f"c-{name}", "read", done)))
            growing.report_changes()
    every = [f"{child}-{at}" for child in ("s0", "s1", "s2") for at in range(20)]
    assert contents(recording, tmp_path) == ["begin", *every]
    written = (tmp_path / "one" / STREAM_FILE).stat().st_size
    assert written < 1.1 * len(every) * len(OUTPUT)


def test_a_message_that_turns_out_to_be_of_a_later_call_is_moved(
    recording: AttemptRecorder, tmp_path: Path
) -> None:
    growing = LiveTranscript("own", recording)

    def delegate(message: str, name: str, at: float) -> None:
        growing.apply(MessageUpdated(info=info(message, "own")))
        growing.apply(PartUpdated(part=text(message, message)))
        state = {"metadata": {"sessionId": "child"}, "time": {"start": at}}
        growing.apply(PartUpdated(part=call(message, name, "task", state)))

    delegate("a", "first", 1)
    for name, at in (("x", 2), ("y", 4)):
        growing.apply(MessageUpdated(info=info(name, "child", at)))
        growing.apply(PartUpdated(part=text(name, name)))
    growing.report_changes()
    assert contents(recording, tmp_path) == ["a", "x", "y"]
    delegate("b", "again", 3)
    growing.report_changes()
    assert contents(recording, tmp_path) == ["a", "x", "b", "y"]
    assert read_back(tmp_path / "one" / STREAM_FILE)[-1].parent == "again"
