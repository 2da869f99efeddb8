"""The exceptions of Shoal: facts as attributes, for callers; surfaces turn them into sentences.

ShoalError
├── ModelError                    a request to a model failed
│   ├── TransientModelError       worth retrying
│   │   ├── RateLimited           429
│   │   ├── Overloaded            529, 503
│   │   ├── ServerFault           other 5xx
│   │   ├── ConnectionLost        no answer at all
│   │   ├── StreamCut             the answer was cut off
│   │   └── StreamStalled         no byte for too long
│   ├── Unauthorized              401, 403
│   ├── UnknownModel              404, or a name that no provider offers
│   ├── ContextTooLong            the history no longer fits
│   ├── BadRequest                other 4xx
│   │   └── QuotaExceeded         the account has no quota or credit left
│   ├── BadReply                  an answer that cannot be parsed
│   └── ReplayMismatch            a replayed run sent a different request
├── AgentRequestRefused           an agent cannot be started or reached; its text is for the model
│   ├── AgentTranscriptMissing    its conversation is no longer stored
│   ├── AgentProcessNotStarted    its process could not be started, or ended before it was ready
│   └── AgentUnusable             its definition, model or options cannot be used, with any prompt
├── NoModelConfigured             no model is configured
├── StateFileError                a session file cannot be written or read
│   ├── SessionNotFound           no session has this id or name
│   └── RunUnresponsive           a run is live and does not answer
├── InvalidName                   text that cannot name a team, an agent or a task
├── TeamStoreError                mail, tasks or rosters refused an operation; its text is for the model
│   ├── LockUnavailable           nothing was written
│   ├── InboxNotFound             a member has no mailbox
│   ├── TeamNotFound              no team has this name
│   ├── TaskUpdateRefused         not found, a cycle, a stale attempt, an illegal transition
│   └── TeamHasActiveMembers      a teammate is active
├── SettingsError                 a setting that cannot be used
├── InvalidCronExpression         an expression that matches no time
├── ScheduleRefused               a schedule that cannot be created or found; its text is for the model
├── InvalidAgentDefinition        an agent definition that cannot be used
├── UnknownAgentType              no agent definition has this name
├── UnknownSkill                  no skill or command has this name
├── InvalidTeamTemplate           a team template that cannot be used
├── BudgetError                   a budget that cannot be enforced, refused before it starts
│   └── BudgetExhausted           a request is not sent because a limit is reached
├── CompactionBlockedByHook       a hook blocked what a person asked for
├── MissingPackageExtra           an optional extra is not installed
├── ProcessError                  a program could not be started, or was lost; its text is for the model
├── WorkspaceError                a file operation is refused; its text is for the model
├── WorktreeError                 a worktree cannot be created, merged or removed
│   └── MergeConflict             nothing was merged
├── QuestionUnanswerable          nobody is available to answer a question
├── RunFailed                     a turn or an agent that a program awaited did not complete its work
└── WorkflowError                 a workflow cannot continue
    ├── WorkflowStopped           somebody stopped it
    └── WorkflowChanged           the program asked for a step that does not match its record
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.budgets.limits import BudgetRefusal
from shoal.core.core_texts import format_core_notice

if TYPE_CHECKING:
    from shoal.core.agents.agent_definitions import DefinitionProblem
    from shoal.core.teams.team_templates import TeamTemplateProblem


class ShoalError(Exception):
    """Base class of all exceptions that Shoal raises on purpose."""


class ModelError(ShoalError):
    def __init__(
        self, message: str, *, provider: str = "", model: str = "", status: int | None = None
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status


class TransientModelError(ModelError):
    """Failure worth retrying. `billed` is True if the provider may charge for the lost answer."""

    billed = False

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, provider=provider, model=model, status=status)
        self.retry_after = retry_after


class RateLimited(TransientModelError): ...


class Overloaded(TransientModelError): ...


class ServerFault(TransientModelError): ...


class ConnectionLost(TransientModelError): ...


class StreamCut(TransientModelError):
    billed = True


class StreamStalled(TransientModelError):
    billed = True


class Unauthorized(ModelError): ...


class UnknownModel(ModelError): ...


class ContextTooLong(ModelError): ...


class BadRequest(ModelError): ...


class QuotaExceeded(BadRequest):
    """The account has no quota or credit left; no later request can succeed."""


class BadReply(ModelError): ...


class ReplayMismatch(ModelError): ...


class AgentRequestRefused(ShoalError): ...


class AgentTranscriptMissing(AgentRequestRefused): ...


class AgentProcessNotStarted(AgentRequestRefused): ...


class AgentUnusable(AgentRequestRefused): ...


class NoModelConfigured(ShoalError): ...


class StateFileError(ShoalError):
    def __init__(self, message: str, *, path: Path) -> None:
        super().__init__(message)
        self.path = path


class SessionNotFound(StateFileError): ...


class RunUnresponsive(StateFileError): ...


class InvalidName(ShoalError): ...


class TeamStoreError(ShoalError): ...


class LockUnavailable(TeamStoreError): ...


class InboxNotFound(TeamStoreError): ...


class TeamNotFound(TeamStoreError): ...


class TaskUpdateRefused(TeamStoreError): ...


class TeamHasActiveMembers(TeamStoreError): ...


class SettingsError(ShoalError):
    """A setting or an option cannot be used."""

    def __init__(self, message: str, *, path: Path | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        """File with the setting; None if it is not in a file."""
        self.line = line
        """Line in the file."""


class InvalidCronExpression(ShoalError):
    """Invalid cron expression. `field` names the wrong field, or is empty for the whole."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class ScheduleRefused(ShoalError): ...


class InvalidAgentDefinition(ShoalError):
    def __init__(self, problem: DefinitionProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem

    @property
    def path(self) -> Path | None:
        return self.problem.source.path

    @property
    def line(self) -> int | None:
        return self.problem.line

    @property
    def field(self) -> str | None:
        return self.problem.field


class UnknownAgentType(ShoalError):
    def __init__(self, name: str, *, available: Sequence[str], similar: Sequence[str] = ()) -> None:
        suggestion = f" {_suggest(similar)}" if similar else ""
        super().__init__(
            format_core_notice(
                "unknown_agent_type", name=repr(name), suggestion=suggestion, names=", ".join(available)
            )
        )
        self.name = name
        self.available = tuple(available)
        self.similar = tuple(similar)


class UnknownSkill(ShoalError):
    """No such skill. `noun` is what was looked for: a skill, a command. `advice` replaces suggestions."""

    def __init__(
        self,
        name: str,
        *,
        available: Sequence[str],
        similar: Sequence[str] = (),
        noun: str = "skill",
        advice: str = "",
    ) -> None:
        suggestion = f"{_suggest(similar)} " if similar else ""
        ending = advice or f"{suggestion}{_list_available(available)}"
        super().__init__(format_core_notice("unknown_skill", noun=noun, name=repr(name), advice=ending))
        self.name = name
        self.advice = advice
        self.available = tuple(available)
        self.similar = tuple(similar)


class InvalidTeamTemplate(ShoalError):
    def __init__(self, problem: TeamTemplateProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class BudgetError(ShoalError): ...


class BudgetExhausted(BudgetError):
    """A limit is reached; the conversation is as it was before the request."""

    def __init__(self, refusal: BudgetRefusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


class CompactionBlockedByHook(ShoalError): ...


class MissingPackageExtra(ShoalError):
    def __init__(self, need: str, extra: str) -> None:
        super().__init__(format_core_notice("missing_extra", need=need, extra=extra))
        self.extra = extra


class ProcessError(ShoalError): ...


class WorkspaceError(ShoalError): ...


class WorktreeError(ShoalError): ...


class MergeConflict(WorktreeError):
    def __init__(self, message: str, *, files: tuple[str, ...]) -> None:
        super().__init__(message)
        self.files = files


class QuestionUnanswerable(ShoalError): ...


class RunFailed(ShoalError):
    """A turn or an agent did not complete its work. `result` is its `Result`, with the reason."""

    def __init__(self, message: str, *, result: Any) -> None:
        super().__init__(message)
        self.result = result
        """`Result` of the work."""


class WorkflowError(ShoalError): ...


class WorkflowStopped(WorkflowError):
    """Somebody stopped a workflow. `reason` says why."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class WorkflowChanged(WorkflowError):
    """A resumed workflow asked for other steps than before. `step` is the number of the recorded step."""

    def __init__(self, message: str, *, step: int) -> None:
        super().__init__(message)
        self.step = step


def _suggest(names: Sequence[str]) -> str:
    return format_core_notice("suggestion", names=" or ".join(names))


def _list_available(names: Sequence[str]) -> str:
    if not names:
        return format_core_notice("none_available")
    return format_core_notice("available", names=", ".join(names))
