"""Results of turns and agents, as programs read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, cast

from msgspec import Struct

from shoal.app.agents.option_words import name_options_in_error, name_options_in_text
from shoal.core.agents.subagents import AgentResult, AgentWorkEvidence, RetainedWorktreeWork
from shoal.core.budgets.usage import Usage
from shoal.core.errors import RunFailed, ShoalError
from shoal.core.events import RunFinished, TurnEndReason
from shoal.core.output_type import AnswerT_co, OutputType

ResultReason: TypeAlias = TurnEndReason | Literal["failed", "stopped", "refused"]
"""Why work ended; `done` if it was completed."""


class Result(Struct, Generic[AnswerT_co], frozen=True, kw_only=True):
    """Result of a turn, or of an agent that the program started."""

    reason: ResultReason
    """`done` if the work was completed; otherwise why it ended."""
    text: str
    """Last text of the agent, even if it did not complete its work."""
    detail: str = ""
    """Explanation of the reason."""
    cost_usd: float | None = None
    """Cost in dollars; None if the price of a model is unknown."""
    usage: Usage = Usage()
    """Tokens of all requests."""
    requests: int = 0
    """Number of model requests."""
    duration_ms: int = 0
    """Time from the start to the end in milliseconds."""
    agent: str = ""
    """Id of the agent."""
    evidence: AgentWorkEvidence = AgentWorkEvidence()
    """What Shoal observed: tool calls, changed files, commits, and the acceptance command."""
    worktree: RetainedWorktreeWork | None = None
    """Work that an isolated agent left in its worktree."""
    answer: Any = None
    """Structured answer as JSON values."""
    value: Any = None
    """Structured answer as the requested type; use `output`."""
    error: Exception | None = None
    """Exception that ended the work, if there was one."""

    @property
    def ok(self) -> bool:
        """True if the work was completed."""
        return self.reason == "done"

    @property
    def output(self) -> AnswerT_co:
        """Answer as the requested type; None if none was requested. Raises `RunFailed` if the work failed."""
        self.raise_if_failed()
        return cast("AnswerT_co", self.value)

    def raise_if_failed(self) -> None:
        """Raise `RunFailed` unless the work was completed."""
        if not self.ok:
            raise RunFailed(
                f"The run did not complete its work ({self.reason}): {self.detail}", result=self
            ) from self.error


def build_turn_result(finished: RunFinished, output: OutputType[Any] | None) -> Result[Any]:
    if isinstance(finished.error, ShoalError):
        name_options_in_error(finished.error)
    return Result(
        reason=finished.reason,
        text=finished.text,
        detail=name_options_in_text(finished.detail),
        cost_usd=finished.cost_usd,
        usage=finished.usage,
        requests=finished.requests,
        duration_ms=finished.duration_ms,
        agent=finished.agent,
        answer=finished.output,
        value=finished.output
        if output is None or finished.reason != "done"
        else output.convert(finished.output),
        error=finished.error,
    )


def build_agent_result(
    result: AgentResult, cost_usd: float | None, output: OutputType[Any] | None
) -> Result[Any]:
    reasons: dict[str, ResultReason] = {"completed": "done", "killed": "stopped"}
    reason = reasons.get(result.status, "failed")
    return Result(
        reason=reason,
        text=read_full_report(result),
        detail=name_options_in_text(result.detail),
        cost_usd=cost_usd,
        usage=result.usage,
        requests=result.requests,
        duration_ms=result.duration_ms,
        agent=result.agent,
        evidence=result.evidence,
        worktree=result.worktree,
        answer=result.answer,
        value=result.answer if output is None or reason != "done" else output.convert(result.answer),
    )


def read_full_report(result: AgentResult) -> str:
    """Return the whole report, which is in a file if it was too long for a conversation."""
    return Path(result.result).read_text(encoding="utf-8") if result.result else result.text
