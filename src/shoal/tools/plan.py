"""Tools that enter and leave plan mode, and the plan's file."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Struct

from shoal.core.identity import Identity
from shoal.core.ids import Ids
from shoal.core.permissions import Mode
from shoal.core.questions import Answer, Approved, ApprovePlan, Denied
from shoal.core.tools import Outcome, Site, Tool, failed
from shoal.tools.define import tool

Approver: TypeAlias = Literal["auto", "lead", "user"]

_WORDS = (
    "amber brisk calm clear coral dapper early fair gentle glad keen level light lucid mellow mild neat "
    "pale plain proud quick quiet rapid ready sharp silver sound steady still sunny tidy warm",
    "anchored blowing carried charted drifting falling floating folded gliding growing humming landing "
    "leading leaning mooring passing ranging resting rising rolling rowing running sailing shining singing "
    "sounding steering swaying turning waking walking winding",
    "bay beacon bell breeze bridge buoy cape chart cliff coast cove current delta dune eddy fjord gull "
    "harbour heron island keel lagoon lantern pier pebble reef river sail shell shore tern tide",
)


class PlanMode(Protocol):
    """Part of the agent's permission engine that the plan tools use."""

    @property
    def mode(self) -> Mode: ...

    @property
    def plan_by_choice(self) -> bool:
        """True if the agent itself chose to plan; otherwise somebody must approve the plan."""
        ...

    def enter_plan(self, plan_file: str) -> None: ...

    def name_plan(self, plan_file: str) -> None:
        """Allow writing this file in plan mode."""
        ...

    def leave_plan(self, mode: Mode | None = None) -> Mode: ...


class Wish(Struct, frozen=True, kw_only=True):
    tool: Annotated[str, "The tool, as Bash"]
    prompt: Annotated[str, "What it will be used for, as: run the tests"]


class Planning:
    """Plan of one agent. `write_file` writes a file atomically; `get_approver` is called when needed."""

    def __init__(
        self,
        permissions: PlanMode,
        *,
        directory: Path,
        ids: Ids,
        approver: Callable[[], Approver],
        write: Callable[[Path, bytes], None],
    ) -> None:
        self.permissions = permissions
        self.approver = approver
        self._directory = directory
        self._ids = ids
        self._write = write
        self._path: Path | None = None
        self.approved: Callable[[Mode], None] = lambda _: None
        """Called with the mode in which an approved plan is carried out."""
        self.changed: Callable[[Mode], None] = lambda _: None
        """Called with each mode that a plan tool sets."""

    @property
    def path(self) -> Path:
        """Path of the plan's file, with a unique name of three words."""
        while self._path is None:
            name = "-".join(self._ids.random.choice(words.split()) for words in _WORDS)
            path = self._directory / f"{name}.md"
            self._path = None if path.exists() else path
        return self._path

    def keep(self, plan: str) -> None:
        self._write(self.path, plan.encode("utf-8", "replace"))

    def kept(self) -> str:
        """Return the plan from its file, or "" if there is none."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def plan_tools(planning_of: Callable[[Identity], Planning]) -> tuple[Tool, ...]:
    """Return the plan tools, shared by any number of agents with their own plans."""

    @tool(name="EnterPlanMode", deadline=None)
    async def enter_plan_mode(site: Site) -> str:
        """Look and think before changing anything: until ExitPlanMode only reading is allowed.

        For work where the way is not clear yet, or where a wrong start would be costly."""
        planning = planning_of(site.agent)
        permissions = planning.permissions
        if permissions.mode == "plan":
            permissions.name_plan(str(planning.path))
            return f"You are in plan mode already. The plan's file is {planning.path}."
        permissions.enter_plan(str(planning.path))
        planning.changed(permissions.mode)
        return (
            "You are in plan mode: read, search, ask, and change nothing. Write the plan into "
            f"{planning.path} or give it to ExitPlanMode, which ends plan mode."
        )

    @tool(name="ExitPlanMode", deadline=None)
    async def exit_plan_mode(
        site: Site,
        plan: Annotated[str | None, "The plan, in Markdown; what the plan's file holds if left out"] = None,
        allowedPrompts: Annotated[  # noqa: N803 - the name that models know
            list[Wish] | None, "What carrying it out will need permission for"
        ] = None,
    ) -> Outcome:
        """Present the plan and leave plan mode to carry it out.

        Where planning was asked of you, somebody approves the plan first. If it is not approved, you stay
        in plan mode: change the plan as they say and present it again."""
        planning = planning_of(site.agent)
        permissions = planning.permissions
        if permissions.mode != "plan":
            return Outcome(content="You are not in plan mode; go on.", data={"mode": permissions.mode})
        if plan is not None:
            planning.keep(plan)
        text = planning.kept()
        if not text.strip():
            return failed("There is no plan yet: give it as `plan`.")
        if permissions.plan_by_choice:
            return _left(permissions.leave_plan(), planning)
        wishes = tuple(f"{wish.tool}: {wish.prompt}" for wish in allowedPrompts or ())
        return _settled(await _approval(planning, text, wishes, site), planning)

    return (enter_plan_mode, exit_plan_mode)


def digest_of(plan: str) -> str:
    return sha256(plan.encode("utf-8", "replace")).hexdigest()


async def _approval(planning: Planning, plan: str, wishes: tuple[str, ...], site: Site) -> Answer:
    if planning.approver() == "auto":
        return Approved(digest=digest_of(plan), by="policy")
    # Each presentation is a new question: an answer to an earlier one cannot approve this one.
    return await site.desk.ask(
        ApprovePlan(
            id=site.ids.short(),
            agent=site.agent.agent,
            plan=plan,
            path=str(planning.path),
            digest=digest_of(plan),
            wishes=wishes,
        )
    )


def _settled(answer: Answer, planning: Planning) -> Outcome:
    match answer:
        case Approved(digest=digest, mode=mode):
            if digest != digest_of(planning.kept()):
                return failed(
                    "The plan has changed since it was presented, so the approval does not count for it. "
                    "You are still in plan mode: present the plan again."
                )
            left_for = planning.permissions.leave_plan(mode)
            planning.approved(left_for)
            return _left(left_for, planning, digest)
        case Denied(reason=reason):
            return failed(f"The plan is not approved: {reason} You are still in plan mode.")
        case _:
            return failed("The answer was not about the plan. You are still in plan mode.")


def _left(mode: Mode, planning: Planning, digest: str | None = None) -> Outcome:
    planning.changed(mode)
    said = "You have left plan mode" if digest is None else "The plan is approved"
    return Outcome(
        content=f"{said}: carry it out. The plan is in {planning.path}; the permission mode is {mode}.",
        data={"path": str(planning.path), "mode": mode, "approved": digest},
    )
