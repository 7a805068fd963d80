"""Requests to go-ent: one definition for MCP, the socket and the command line.

The names are public (see `docs/interfaces.md`); the descriptions are written for models.
"""

from typing import Annotated, Literal

from msgspec import Meta

from goent.domain.types import Isolation, Method, PermissionAnswer, Preset, Value, WorkerState

MAX_WAIT_S = 240.0
OutputFilter = Literal["all", "text", "tools", "thoughts"]

WorkerId = Annotated[str, Meta(description="The worker's id, as worker_spawn gave it.")]
Cursor = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
PositiveNumber = Annotated[float, Meta(gt=0)]
WaitSeconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_S)]


class OperationRequest(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request; unknown arguments are errors."""


class SpawnRequest(OperationRequest, frozen=True, kw_only=True):
    """A task for a new worker."""

    task: Annotated[str, Meta(description="The complete task: the worker sees nothing else.")]
    provider: Annotated[
        str | None,
        Meta(description="Pin a provider by its name in provider_list, or a backend id."),
    ] = None
    model: Annotated[
        str | None, Meta(description="Pin a model, e.g. 'glm-5.3' or 'zai/glm-5.3'.")
    ] = None
    method: Annotated[Method | None, Meta(description="Pin how the worker runs.")] = None
    cwd: Annotated[
        str | None, Meta(description="Directory to work in; default: where the client was started.")
    ] = None
    files: Annotated[
        tuple[str, ...], Meta(description="Files the worker should look at first.")
    ] = ()
    isolation: Annotated[
        Isolation,
        Meta(
            description="'worktree': a git worktree and branch of its own; 'copy': the same "
            "without git; 'dedicated': a process of its own. auto: shared, unless set."
        ),
    ] = "auto"
    uncommitted: Annotated[
        bool, Meta(description="With a folder of its own: start with uncommitted changes too.")
    ] = False
    carry: Annotated[
        tuple[str, ...],
        Meta(description="With a folder of its own: untracked files it needs, e.g. '.env'."),
    ] = ()
    permissions: Annotated[
        Preset | None,
        Meta(
            description="readonly: no edits, no shell; ask: asks before every change; "
            "edit: edits allowed, asks for shell; auto: everything inside cwd allowed."
        ),
    ] = None
    budget_usd: Annotated[
        PositiveNumber | None, Meta(description="What the task may cost, in USD.")
    ] = None
    timeout_s: Annotated[
        PositiveNumber | None, Meta(description="End a turn that takes longer than this.")
    ] = None
    verify: Annotated[
        tuple[str, ...],
        Meta(description="Shell commands that must exit 0 before the work counts as verified."),
    ] = ()
    allow_fallback: Annotated[
        bool | None, Meta(description="Let a pinned task move to another provider if it fails.")
    ] = None
    allowed_tools: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="For go-ent's own agent (method agent): the only tools it may use; "
            "[]: none. Default: all."
        ),
    ] = None
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(description="For method api: the sampling temperature, 0 to 2."),
    ] = None
    wait_s: Annotated[
        WaitSeconds | None,
        Meta(
            description="Wait this long for the result before answering. "
            "Default: 60 for method api, else 0."
        ),
    ] = None


class AgentSpawnRequest(OperationRequest, frozen=True, kw_only=True):
    """A task for a new worker on go-ent's own agent."""

    task: Annotated[str, Meta(description="The complete task: the worker sees nothing else.")]
    model: Annotated[
        str | None,
        Meta(
            description="'haiku', 'sonnet', or a provider or provider/model of provider_list. "
            "Default: haiku for a simple task, sonnet for several files or complex logic."
        ),
    ] = None
    allowed_tools: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="The only tools it may use, of Read, Write, Edit, Bash, Grep, Glob, "
            "TodoWrite; []: none. Default: all."
        ),
    ] = None
    cwd: Annotated[
        str | None, Meta(description="Directory to work in; default: where the client was started.")
    ] = None
    permissions: Annotated[Preset | None, Meta(description="As in worker_spawn.")] = None
    wait_s: Annotated[WaitSeconds, Meta(description="Wait this long for the result.")] = 0.0

    def as_spawn(self) -> SpawnRequest:
        return SpawnRequest(
            task=self.task,
            method="agent",
            model=self.model,
            allowed_tools=self.allowed_tools,
            cwd=self.cwd,
            permissions=self.permissions,
            wait_s=self.wait_s,
        )


class WorkerRequest(OperationRequest, frozen=True, kw_only=True):
    """A request about one worker."""

    worker_id: WorkerId


class PromptRequest(WorkerRequest, frozen=True, kw_only=True):
    """A further prompt to an open worker."""

    prompt: Annotated[str, Meta(description="What to do next; the worker remembers the rest.")]
    files: Annotated[tuple[str, ...], Meta(description="Files to look at first.")] = ()
    queue: Annotated[bool, Meta(description="Wait behind a running turn instead of failing.")] = (
        False
    )
    wait_s: Annotated[WaitSeconds, Meta(description="Wait this long for the turn to end.")] = 0.0


class AgentPromptRequest(WorkerRequest, frozen=True, kw_only=True):
    """A further prompt to a worker on an agent."""

    prompt: Annotated[str, Meta(description="What to do next; the worker remembers the rest.")]
    wait_s: Annotated[WaitSeconds, Meta(description="Wait this long for the turn to end.")] = 0.0

    def as_prompt(self) -> PromptRequest:
        return PromptRequest(worker_id=self.worker_id, prompt=self.prompt, wait_s=self.wait_s)


class AgentCancelRequest(WorkerRequest, frozen=True, kw_only=True):
    """Stop the turn of a worker on an agent."""


class StatusRequest(WorkerRequest, frozen=True, kw_only=True):
    """The status of a worker."""

    whole: Annotated[
        bool, Meta(description="An open question's complete detail, however long.")
    ] = False


class OutputRequest(WorkerRequest, frozen=True, kw_only=True):
    """A worker's output: text, reasoning, tool calls."""

    since_last: Annotated[
        bool, Meta(description="Only what this connection has not received yet.")
    ] = False
    cursor: Annotated[
        Cursor | None, Meta(description="Only what came after this cursor of an earlier reply.")
    ] = None
    limit: Annotated[
        int, Meta(description="Approximate number of characters.", gt=0, le=100_000)
    ] = 4000
    filter: Annotated[OutputFilter, Meta(description="Which part of it.")] = "all"


class WaitRequest(OperationRequest, frozen=True, kw_only=True):
    """Wait until workers end their turn or ask for a permission."""

    worker_ids: Annotated[tuple[str, ...], Meta(description="The workers' ids.", min_length=1)]
    any: Annotated[bool, Meta(description="Return when the first one ends.")] = False
    timeout_s: Annotated[WaitSeconds, Meta(description="Return after this long at the latest.")] = (
        60.0
    )


class AnswerRequest(WorkerRequest, frozen=True, kw_only=True):
    """The answer to a permission question."""

    permission_id: Annotated[str, Meta(description="The question's id, from worker_status.")]
    option: Annotated[PermissionAnswer, Meta(description="What to answer.")]
    message: Annotated[
        str, Meta(description="With reject: what to do instead. The turn then continues.")
    ] = ""


class CancelRequest(WorkerRequest, frozen=True, kw_only=True):
    """Stop a worker's turn; with `close`, also the worker."""

    reason: Annotated[str, Meta(description="Why; kept in the journal.")] = ""
    close: Annotated[bool, Meta(description="Also close the worker for good.")] = False


class ListRequest(OperationRequest, frozen=True, kw_only=True):
    """List workers, newest first."""

    state: Annotated[WorkerState | None, Meta(description="Only those in this state.")] = None
    provider: Annotated[str | None, Meta(description="Only those of this provider.")] = None
    limit: Annotated[int, Meta(gt=0, le=200)] = 20


class ProvidersRequest(OperationRequest, frozen=True, kw_only=True):
    """List providers."""

    healthy_only: Annotated[
        bool, Meta(description="Leave out providers that cannot be used now.")
    ] = False


class RecommendRequest(OperationRequest, frozen=True, kw_only=True):
    """Recommend a provider for a task."""

    task: Annotated[str, Meta(description="What the worker would have to do.")]
    files: Annotated[tuple[str, ...], Meta(description="Files that the task is about.")] = ()
    context_tokens: Annotated[
        Count | None, Meta(description="Tokens to read, if you know better.")
    ] = None
    budget_usd: Annotated[PositiveNumber | None, Meta(description="What it may cost, in USD.")] = (
        None
    )


class RulesRequest(OperationRequest, frozen=True, kw_only=True):
    """List the routing rules in force."""


class ForgetRequest(OperationRequest, frozen=True, kw_only=True):
    """Reset the health of a provider; without a name, of all."""

    provider: str | None = None


class SpacesRequest(OperationRequest, frozen=True, kw_only=True):
    """List kept workspaces."""


class ClearRequest(OperationRequest, frozen=True, kw_only=True):
    """Remove the workspaces of these workers with their content; without any, those no longer needed."""

    workers: tuple[str, ...] = ()


class CostsRequest(OperationRequest, frozen=True, kw_only=True):
    """Report costs."""

    by: Literal["provider", "model", "worker", "day"] = "provider"
    project_only: bool = True


class StopRequest(OperationRequest, frozen=True, kw_only=True):
    """End the daemon; with `if_idle`, only if no turn is in progress.

    `handover`: another daemon follows immediately, and open workers wait for it instead of closing.
    """

    if_idle: bool = False
    handover: bool = False


class WatchRequest(OperationRequest, frozen=True, kw_only=True):
    """Send every event of these workers (of all, if none is named) after the cursor."""

    worker_ids: tuple[str, ...] = ()
    after: int = 0


class LearnedRequest(OperationRequest, frozen=True, kw_only=True):
    """Report what was learned about providers from outcomes."""
