"""Texts for events: an agent started or ended, and notices for the user."""

from __future__ import annotations

from pathlib import Path

from shoal.app.run_view.agent_status import AgentStatusRecord
from shoal.core.agents.subagents import PROGRAM_CALL, AgentResult
from shoal.core.events import (
    PREVIEW_LENGTH,
    AgentEnded,
    AgentMovedToBackground,
    AgentStarted,
    BudgetThresholdReached,
    ConversationCompacted,
    Event,
    NoteAdded,
    PartialReplyDiscarded,
    RepetitionStopped,
    TurnUndone,
    WorkflowEnded,
    WorkflowPhaseStarted,
    WorkflowStarted,
    WorkflowStepStarted,
    WorktreeWorkRetained,
)
from shoal.core.text.text_format import (
    format_count_with_noun,
    format_duration,
    format_token_count,
    to_one_line,
)
from shoal.surfaces.terminal.text_styles import DIM, YELLOW, keep_whole_words, truncate_text
from shoal.surfaces.terminal.user_messages import describe_budget_warning

_WIDEST = 100


def describe_notice_event(event: Event) -> tuple[str, str] | None:
    """Return the notice and its style; None for other events."""
    match event:
        case PartialReplyDiscarded(reason=reason, retry_in=delay, attempt=attempt):
            return (
                f"⟳ retrying in {format_duration(delay)} (attempt {attempt}): {to_one_line(reason)}",
                YELLOW,
            )
        case ConversationCompacted(tokens_before=tokens):
            return f"the conversation continues from a summary (it had {tokens} tokens)", DIM
        case TurnUndone(turn=turn):
            return f"files restored to their state before turn {turn}", DIM
        case NoteAdded(text=text):
            return to_one_line(text), YELLOW
        case RepetitionStopped(reason=reason):
            return f"stopped: {to_one_line(reason)}", YELLOW
        case BudgetThresholdReached():
            return to_one_line(describe_budget_warning(event)), YELLOW
        case WorkflowStarted() | WorkflowPhaseStarted() | WorkflowStepStarted() | WorkflowEnded():
            return _describe_workflow_event(event)
        case _:
            return None


def _describe_workflow_event(
    event: WorkflowStarted | WorkflowPhaseStarted | WorkflowStepStarted | WorkflowEnded,
) -> tuple[str, str] | None:
    workflow = to_one_line(event.workflow)
    match event:
        case WorkflowStarted(resumed=is_resumed):
            return f"workflow {workflow} {'continues' if is_resumed else 'started'}", DIM
        case WorkflowPhaseStarted(phase=phase):
            return f"workflow {workflow}: phase {to_one_line(phase)}", DIM
        case WorkflowStepStarted():
            return _describe_workflow_step(event)
        case WorkflowEnded(status="completed"):
            return f"workflow {workflow} completed", DIM
        case WorkflowEnded(status=status, detail=detail):
            outcome = "was stopped" if status == "stopped" else status
            return f"workflow {workflow} {outcome}: {truncate_text(to_one_line(detail), _WIDEST)}", YELLOW


def _describe_workflow_step(event: WorkflowStepStarted) -> tuple[str, str] | None:
    """Describe a command or a wait. Agents and questions have separate lines."""
    workflow, preview = to_one_line(event.workflow), truncate_text(to_one_line(event.preview), _WIDEST)
    match event.path.rpartition("/")[2]:
        case "shell":
            return f"workflow {workflow}: runs {preview}", DIM
        case "sleep":
            return f"workflow {workflow}: waits {preview}", DIM
        case _:
            return None


def describe_background_agent_event(event: Event, status: AgentStatusRecord) -> str | None:
    """Describe the start or end of a background agent. The tool call describes a foreground agent.

    Agents of programs and workflows have no tool call, so their end is described. Work left in a worktree is
    described for all.
    """
    task = f": {to_one_line(status.task)}" if status.task else ""
    match event:
        case AgentStarted(background=True, resumed=is_resumed):
            verb = "continues" if is_resumed else "started"
            return f"agent {status.display_name} {verb} in the background{task}"
        case AgentMovedToBackground():
            return f"agent {status.display_name} continues in the background{task}"
        case AgentEnded(completion=completion) if completion.background or completion.call == PROGRAM_CALL:
            return f"agent {status.display_name} {describe_agent_completion(completion)}{task}"
        case WorktreeWorkRetained(work=retained_work):
            name = to_one_line(Path(retained_work.path).name)
            return (
                f"agent {status.display_name} left work in a worktree; merge it: shoal worktree merge {name}"
            )
        case _:
            return None


def describe_agent_completion(result: AgentResult) -> str:
    """Describe how the agent ended and its usage."""
    calls = format_count_with_noun(result.evidence.tool_calls, "tool call")
    outcome = "was stopped" if result.status == "killed" else result.status
    detail = f", {truncate_text(to_one_line(result.detail), _WIDEST)}" if result.detail else ""
    duration = format_duration(result.duration_ms / 1000)
    return f"{outcome} ({calls}, {format_token_count(result.usage.total_tokens)} tokens, {duration}{detail})"


def mark_truncated_preview(text: str) -> str:
    """Mark a preview that the event truncated: keep whole words and append an ellipsis."""
    return text if len(text) < PREVIEW_LENGTH else keep_whole_words(text) or f"{text}…"
