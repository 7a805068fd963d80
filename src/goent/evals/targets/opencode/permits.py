"""Who decides when the agent asks for a permission, and what was decided?

The session's rules make OpenCode ask. A subagent's session has none of them, so what they decide is
decided here; a file that the case links to may be read, and not written; all else is the target's policy.

go-ent's guard in a server of ours asks before a call runs, OpenCode while it runs. What the policy does not
allow is refused to the guard already; what it allows, OpenCode's own question notes.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from goent.domain.guard import GuardedCall, Verdict
from goent.domain.settings import PermissionRule
from goent.drivers.ground import Ground
from goent.drivers.opencode.client import Client, Reply
from goent.drivers.opencode.conversation import refused
from goent.drivers.opencode.guard import OUTSIDE, matters
from goent.drivers.opencode.shapes import Question
from goent.drivers.questions import Matter, verdict
from goent.drivers.rules import judge
from goent.evals.ports import Witness
from goent.evals.suites import Policy
from goent.evals.traces import PermissionDecision


class Permits:
    """The permissions of one attempt; `refused` is the decision that fails it, `stopped` the call it was about.

    Only of a call that the guard has stopped: OpenCode does not end its turn for that.
    """

    def __init__(
        self,
        rules: Collection[PermissionRule],
        policy: Policy,
        links: Collection[Path],
        witness: Witness,
    ) -> None:
        self.refused: PermissionDecision | None = None
        self.stopped = ""
        self._rules = tuple(rules)
        self._policy: Policy = policy
        self._links = frozenset(map(str, links))
        self._witness = witness
        self._decided: dict[str, PermissionDecision] = {}
        self._answered = set[str]()

    async def answer(self, question: Question, client: Client, directory: str) -> None:
        """Decided once, and noted before OpenCode hears of it; told again if that did not get through."""
        if question.id in self._answered:
            return
        if question.id not in self._decided:
            linked = await self._reads_a_link(question, client)
            self._note(question.id, self._decide(question, linked=linked))
        await client.reply(question.id, self._decided[question.id].decision, directory)
        self._answered.add(question.id)

    def judge(self, call: GuardedCall, ground: Ground) -> Verdict:
        """May a call run? By the rules, or else by the policy; a guarded file is like any other here."""
        for matter in matters(call, ground):
            action = verdict(replace(matter, reason=""), self._rules)
            if action == "allow" or self._looks_at_link(call, matter, ground):
                continue
            if action == "ask" and self._policy != "reject":
                continue
            by = "policy" if action == "ask" else "rule"
            decision = PermissionDecision(
                permission=matter.permission,
                patterns=matter.patterns,
                decision="reject",
                by=by,
                at=_now(),
                call=call.call,
            )
            self._note(f"{call.session} {call.call}", decision)
            self.stopped = call.call if self.refused is decision else self.stopped
            return refused(matter, f"by the target's {by}")
        return Verdict(allow=True)

    def _looks_at_link(self, call: GuardedCall, matter: Matter, ground: Ground) -> bool:
        path = call.args.get("filePath")
        place = ground.real(path) if isinstance(path, str) else None
        linked = {ground.real(link) for link in self._links}
        return call.tool == "read" and matter.permission == OUTSIDE and place in linked

    @property
    def decisions(self) -> tuple[PermissionDecision, ...]:
        return tuple(self._decided.values())

    def _note(self, name: str, decision: PermissionDecision) -> None:
        self._decided[name] = decision
        self._witness.decided(decision)
        if decision.decision == "reject" and decision.by == "policy":
            self.refused = self.refused or decision

    def _decide(self, question: Question, *, linked: bool) -> PermissionDecision:
        decision: Reply = self._policy
        by = "policy"
        verdict = judge(self._rules, question.permission, question.patterns)
        if verdict != "ask":
            decision, by = ("once" if verdict == "allow" else "reject"), "rule"
        elif linked:
            decision, by = "once", "link"
        return PermissionDecision(
            permission=question.permission,
            patterns=question.patterns,
            decision=decision,
            by=by,
            at=_now(),
            call=question.tool.call if question.tool else "",
        )

    async def _reads_a_link(self, question: Question, client: Client) -> bool:
        """The question is the same for reading and for writing; the call that it is about tells them apart."""
        if (
            question.permission != "external_directory"
            or question.metadata.filepath not in self._links
            or question.tool is None
        ):
            return False
        said = await client.messages(question.session)
        calls = (part for message in said for part in message.parts if part.type == "tool")
        return any(part.call == question.tool.call and part.tool == "read" for part in calls)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
