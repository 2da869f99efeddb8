"""Tools that enter and leave plan mode, and the plan's file."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.agents.identity import AgentIdentity
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.ids import IdGenerator
from shoal.core.permissions.permission_changes import PermissionMode
from shoal.core.permissions.questions import Answer, DenyAnswer, PlanApprovalQuestion, PlanApprovedAnswer
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text

PlanApprover: TypeAlias = Literal["auto", "lead", "user"]

_NAME_WORDS = (
    "amber brisk calm clear coral dapper early fair gentle glad keen level light lucid mellow mild neat "
    "pale plain proud quick quiet rapid ready sharp silver sound steady still sunny tidy warm",
    "anchored blowing carried charted drifting falling floating folded gliding growing humming landing "
    "leading leaning mooring passing ranging resting rising rolling rowing running sailing shining singing "
    "sounding steering swaying turning waking walking winding",
    "bay beacon bell breeze bridge buoy cape chart cliff coast cove current delta dune eddy fjord gull "
    "harbour heron island keel lagoon lantern pier pebble reef river sail shell shore tern tide",
)


class PlanModePermissions(Protocol):
    """Part of the agent's permission engine that the plan tools use."""

    @property
    def mode(self) -> PermissionMode: ...

    @property
    def is_plan_voluntary(self) -> bool:
        """True if the agent itself chose to plan; otherwise somebody must approve the plan."""
        ...

    def enter_plan_mode(self, plan_file: str) -> None: ...

    def allow_plan_file(self, plan_file: str) -> None:
        """Allow writing this file in plan mode."""
        ...

    def leave_plan_mode(self, mode: PermissionMode | None = None) -> PermissionMode: ...


class PlannedToolUseInput(Struct, frozen=True, kw_only=True):
    tool: str
    prompt: str


class AgentPlan:
    """Plan of one agent. `write_file` writes a file atomically; `get_approver` is called when needed."""

    def __init__(
        self,
        permissions: PlanModePermissions,
        *,
        directory: Path,
        ids: IdGenerator,
        get_approver: Callable[[], PlanApprover],
        write_file: Callable[[Path, bytes], None],
        on_approved: Callable[[PermissionMode], None],
        on_mode_changed: Callable[[PermissionMode], None],
    ) -> None:
        self.permissions = permissions
        self.get_approver = get_approver
        self._directory = directory
        self._ids = ids
        self._write_file = write_file
        self._path: Path | None = None
        self.on_approved = on_approved
        """Called with the mode in which an approved plan is carried out."""
        self.on_mode_changed = on_mode_changed
        """Called with each mode that a plan tool sets."""

    @property
    def path(self) -> Path:
        """Path of the plan's file, with a unique name of three words."""
        while self._path is None:
            name = "-".join(self._ids.random.choice(words.split()) for words in _NAME_WORDS)
            path = self._directory / f"{name}.md"
            self._path = None if path.exists() else path
        return self._path

    def save_plan_file(self, plan: str) -> None:
        self._write_file(self.path, plan.encode("utf-8", "replace"))

    def load_plan_file(self) -> str:
        """Return the plan from its file, or "" if there is none."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def build_plan_tools(get_plan: Callable[[AgentIdentity], AgentPlan]) -> tuple[Tool, ...]:
    """Return the plan tools, shared by any number of agents with their own plans."""

    @builtin_tool(name="EnterPlanMode", deadline=None)
    async def enter_plan_mode(context: ToolContext) -> str:
        agent_plan = get_plan(context.agent)
        permissions = agent_plan.permissions
        if permissions.mode == "plan":
            permissions.allow_plan_file(str(agent_plan.path))
            return format_tool_text("EnterPlanMode", "already", path=agent_plan.path)
        permissions.enter_plan_mode(str(agent_plan.path))
        agent_plan.on_mode_changed(permissions.mode)
        return format_tool_text("EnterPlanMode", "entered", path=agent_plan.path)

    @builtin_tool(name="ExitPlanMode", deadline=None)
    async def exit_plan_mode(
        context: ToolContext,
        plan: str | None = None,
        allowedPrompts: list[PlannedToolUseInput] | None = None,  # noqa: N803 - the name that models know
    ) -> ToolOutput:
        agent_plan = get_plan(context.agent)
        permissions = agent_plan.permissions
        if permissions.mode != "plan":
            return ToolOutput(
                content=format_tool_text("ExitPlanMode", "not_in_plan_mode"), data={"mode": permissions.mode}
            )
        if plan is not None:
            agent_plan.save_plan_file(plan)
        text = agent_plan.load_plan_file()
        if not text.strip():
            return create_tool_error_output(format_tool_text("ExitPlanMode", "no_plan"))
        if permissions.is_plan_voluntary and not context.agent.is_lead:
            return _report_plan_mode_exit(permissions.leave_plan_mode(), agent_plan)
        tool_uses = tuple(f"{use.tool}: {use.prompt}" for use in allowedPrompts or ())
        return _apply_plan_answer(
            await _request_plan_approval(agent_plan, text, tool_uses, context), agent_plan
        )

    return (enter_plan_mode, exit_plan_mode)


def compute_plan_digest(plan: str) -> str:
    return sha256(plan.encode("utf-8", "replace")).hexdigest()


async def _request_plan_approval(
    agent_plan: AgentPlan, plan: str, tool_uses: tuple[str, ...], context: ToolContext
) -> Answer:
    if agent_plan.get_approver() == "auto":
        return PlanApprovedAnswer(digest=compute_plan_digest(plan), by="policy")
    # Each presentation is a new question: an answer to an earlier one cannot approve this one.
    return await context.question_broker.ask_person_or_deny(
        PlanApprovalQuestion(
            id=context.ids.new_short_id(),
            agent=context.agent.agent,
            plan=plan,
            path=str(agent_plan.path),
            digest=compute_plan_digest(plan),
            wishes=tool_uses,
        )
    )


def _apply_plan_answer(answer: Answer, agent_plan: AgentPlan) -> ToolOutput:
    match answer:
        case PlanApprovedAnswer(digest=digest, mode=mode):
            if digest != compute_plan_digest(agent_plan.load_plan_file()):
                return create_tool_error_output(format_tool_text("ExitPlanMode", "plan_changed"))
            new_mode = agent_plan.permissions.leave_plan_mode(mode)
            agent_plan.on_approved(new_mode)
            return _report_plan_mode_exit(new_mode, agent_plan, digest)
        case DenyAnswer(reason=reason):
            return create_tool_error_output(format_tool_text("ExitPlanMode", "rejected", reason=reason))
        case _:
            return create_tool_error_output(format_tool_text("ExitPlanMode", "other_answer"))


def _report_plan_mode_exit(
    mode: PermissionMode, agent_plan: AgentPlan, digest: str | None = None
) -> ToolOutput:
    agent_plan.on_mode_changed(mode)
    return ToolOutput(
        content=format_tool_text(
            "ExitPlanMode", "left" if digest is None else "approved", path=agent_plan.path, mode=mode
        ),
        data={"path": str(agent_plan.path), "mode": mode, "approved": digest},
    )
