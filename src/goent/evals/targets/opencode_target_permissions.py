"""Decides what an OpenCode agent may do in an attempt, and records each decision.

OpenCode has only rules: the last one that matches a permission decides, and a tool whose last rule
denies everything is not offered to the model. So switching a tool off is a rule at the end.

The session's rules make OpenCode ask. A subagent's session has none of them, so they are applied here;
a file that the case links to may be read but not written; the target's policy decides the rest.

In a server of ours, go-ent's guard asks before a call runs, and OpenCode while it runs. Calls that the
policy does not allow are refused at the guard; of the others, OpenCode's own question is recorded.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from goent.agents.worker_paths import OUTSIDE, WorkerPaths
from goent.domain.ports import GuardedCall, GuardVerdict
from goent.domain.settings import PermissionRule
from goent.evals.eval_ports import AttemptObserver
from goent.evals.suites import AskPolicy
from goent.evals.targets.opencode_target_settings import (
    EDIT_TOOLS,
    OpenCodeTargetSettings,
    Permissions,
)
from goent.evals.traces import PermissionDecision
from goent.opencode.call_guard import access_for_guarded_call
from goent.opencode.server_api import OpenCodeClient, PendingQuestion, QuestionReply
from goent.opencode.session import refusal_verdict
from goent.permissions.access_rules import AccessRequest, decide_access, strictest_action
from goent.permissions.permission_rules import wildcard_matches

# Network access would make attempts irreproducible, and there is nobody to answer questions.
DISABLED_TOOLS: Final[Mapping[str, bool]] = {
    "webfetch": False,
    "websearch": False,
    "codesearch": False,
    "question": False,
}
ASK_RULES: Final = tuple(
    PermissionRule(tool=tool, action="ask")
    for tool in (
        *("edit", "bash", "webfetch", "websearch", "codesearch"),
        *("external_directory", "doom_loop"),
    )
)


# For servers with a foreign configuration, which may have MCP tools (`server_tool`) and agents with more
# permissions. A subagent's session has none of our rules, so starting one needs a question.
FOREIGN_CONFIG_RULES: Final = (
    PermissionRule(tool="*_*", action="ask"),
    PermissionRule(tool="plan_*", action="deny"),  # as OpenCode has it
    PermissionRule(tool="task", action="ask"),
)


def session_rules(settings: OpenCodeTargetSettings) -> tuple[PermissionRule, ...]:
    """The rules of an attempt's session; the last that matches decides."""
    others = () if settings.is_hermetic else FOREIGN_CONFIG_RULES
    allowed = (*others, *ASK_RULES, *_target_rules(settings.permission))
    return (*allowed, *_switch_rules({**DISABLED_TOOLS, **settings.tools}, allowed))


def _target_rules(permission: Permissions | None) -> Iterator[PermissionRule]:
    """The target's own rules, as OpenCode's configuration has them."""
    if isinstance(permission, str):
        yield PermissionRule(tool="*", action=permission)
        return
    for tool, what in (permission or {}).items():
        name = _permission_name(tool)
        if isinstance(what, str):
            yield PermissionRule(tool=name, action=what)
        else:
            for pattern, action in what.items():
                yield PermissionRule(tool=name, pattern=pattern, action=action)


def _switch_rules(
    tools: Mapping[str, bool], allowed: Iterable[PermissionRule]
) -> Iterator[PermissionRule]:
    """Off denies the tool. On revokes an earlier denial, such as of `*`, and restores the rules before."""
    denied = list[str]()
    for tool, on in tools.items():
        name = _permission_name(tool)
        if not on:
            denied.append(name)
            yield PermissionRule(tool=name, action="deny")
        elif any(wildcard_matches(off, name) for off in denied):
            yield PermissionRule(tool=name, action="allow")
            for rule in allowed:
                if wildcard_matches(rule.tool, name):
                    yield PermissionRule(tool=name, pattern=rule.pattern, action=rule.action)


def _permission_name(tool: str) -> str:
    return "edit" if tool in EDIT_TOOLS else tool


class AttemptPermissions:
    """The permissions of one attempt; `refusal` is the decision that fails it.

    `stopped_call` is the call of a refusal at the guard, for which OpenCode does not end its turn.
    """

    def __init__(
        self,
        rules: Collection[PermissionRule],
        policy: AskPolicy,
        links: Collection[Path],
        observer: AttemptObserver,
    ) -> None:
        self.refusal: PermissionDecision | None = None
        self.stopped_call = ""
        self._rules = tuple(rules)
        self._policy: AskPolicy = policy
        self._links = frozenset(map(str, links))
        self._observer = observer
        self._decided: dict[str, PermissionDecision] = {}
        self._answered = set[str]()

    async def answer(
        self, question: PendingQuestion, client: OpenCodeClient, directory: str
    ) -> None:
        """Decide once, record the decision, and send it until OpenCode has received it."""
        if question.id in self._answered:
            return
        if question.id not in self._decided:
            linked = await self._is_link_read(question, client)
            self._record(question.id, self._decide(question, linked=linked))
        await client.reply(question.id, self._decided[question.id].decision, directory)
        self._answered.add(question.id)

    def judge(self, call: GuardedCall, workdir: WorkerPaths) -> GuardVerdict:
        """Decide whether a call may run, by the rules or else the policy; no file is special here."""
        for access in access_for_guarded_call(call, workdir):
            action = decide_access(replace(access, reason=""), self._rules)
            if action == "allow" or self._allows_link(call, access, workdir):
                continue
            if action == "ask" and self._policy != "reject":
                continue
            by = "policy" if action == "ask" else "rule"
            decision = PermissionDecision(
                permission=access.permission,
                patterns=access.patterns,
                decision="reject",
                by=by,
                at=_now(),
                call=call.call,
            )
            self._record(f"{call.session} {call.call}", decision)
            self.stopped_call = call.call if self.refusal is decision else self.stopped_call
            return refusal_verdict(access, f"by the target's {by}")
        return GuardVerdict(allow=True)

    def _allows_link(self, call: GuardedCall, access: AccessRequest, workdir: WorkerPaths) -> bool:
        path = call.args.get("filePath")
        place = workdir.resolve(path) if isinstance(path, str) else None
        linked = {workdir.resolve(link) for link in self._links}
        return call.tool == "read" and access.permission == OUTSIDE and place in linked

    @property
    def decisions(self) -> tuple[PermissionDecision, ...]:
        return tuple(self._decided.values())

    def _record(self, name: str, decision: PermissionDecision) -> None:
        self._decided[name] = decision
        self._observer.permission_decided(decision)
        if decision.decision == "reject" and decision.by == "policy":
            self.refusal = self.refusal or decision

    def _decide(self, question: PendingQuestion, *, linked: bool) -> PermissionDecision:
        decision: QuestionReply = self._policy
        by = "policy"
        verdict = strictest_action(self._rules, question.permission, question.patterns)
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

    async def _is_link_read(self, question: PendingQuestion, client: OpenCodeClient) -> bool:
        """Whether it is about reading a link: only the call tells reading from writing."""
        if (
            question.permission != OUTSIDE
            or question.metadata.filepath not in self._links
            or question.tool is None
        ):
            return False
        messages = await client.messages(question.session)
        calls = (part for message in messages for part in message.parts if part.type == "tool")
        return any(part.call == question.tool.call and part.tool == "read" for part in calls)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
