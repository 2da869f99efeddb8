"""Descriptions of the hook events: when each fires, its fields, and the effect of blocking it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shoal.core.hooks import HookEvent


class Occasion(Struct, frozen=True, kw_only=True):
    when: str
    told: Mapping[str, str] = {}
    """Fields in addition to the common ones."""
    at_times: Mapping[str, str] = {}
    """Fields that are present only if they have a value."""
    blocked: str = "Nothing but that the person is told: it happens all the same."


ALWAYS: Mapping[str, str] = {
    "session_id": "The session.",
    "transcript_path": "The file of the lead's conversation; empty where none is kept.",
    "cwd": "The directory the agent works in.",
    "permission_mode": "The mode it works in.",
    "hook_event_name": "The event.",
}
OF_AGENTS: Mapping[str, str] = {
    "agent_id": "The agent it is about.",
    "agent_type": "Its type.",
}
"""Present for every agent except the lead."""
_CALL = {
    "tool_name": "The tool.",
    "tool_input": "What the model gave it.",
    "tool_use_id": "The id of the call.",
}
_TRANSCRIPT = {"agent_transcript_path": "The file of the agent's own conversation."}
_STOPPING = {
    "stop_hook_active": "Whether hooks have sent it back before, in this turn.",
    "last_assistant_message": "What it said last.",
}
_TEAM = {"team_name": "The team.", "teammate_name": "The teammate whose work it is."}
_NOT_MADE = "The call is not made, and the model reads the reason."
_GOES_ON = "It goes on working with the reason, at most 8 times in a row."

OCCASIONS: Mapping[HookEvent, Occasion] = {
    "PreToolUse": Occasion(
        when="Before a tool call, and before its permission is looked at.", told=_CALL, blocked=_NOT_MADE
    ),
    "PostToolUse": Occasion(
        when="After a tool call.",
        told={**_CALL, "tool_response": "What it gave back: `content`, the text, and what the tool adds."},
        blocked="The model reads the reason behind the result.",
    ),
    "PostToolUseFailure": Occasion(
        when="After a tool call that failed.",
        told={**_CALL, "error": "The text of the failure."},
        blocked="The model reads the reason behind the failure.",
    ),
    "PermissionRequest": Occasion(
        when="Before a person is asked about a call.", told=_CALL, blocked=_NOT_MADE
    ),
    "UserPromptSubmit": Occasion(
        when="A person says something to an agent.",
        told={"prompt": "What was said."},
        blocked="The prompt is erased, and the person is told.",
    ),
    "Stop": Occasion(when="The lead would stop.", told=_STOPPING, blocked=_GOES_ON),
    "SubagentStart": Occasion(
        when="Before the first step of an agent; not of one that is resumed.", told=_TRANSCRIPT
    ),
    "SubagentStop": Occasion(
        when="Any agent but the lead would stop.", told={**_STOPPING, **_TRANSCRIPT}, blocked=_GOES_ON
    ),
    "TeammateIdle": Occasion(when="A teammate would go idle.", told=_TEAM, blocked=_GOES_ON),
    "TaskCreated": Occasion(
        when="Before a task is on the board.",
        told={"task_subject": "Its subject.", "task_description": "Its description."},
        at_times=_TEAM,
        blocked="The task is not created, and the model reads the reason.",
    ),
    "TaskCompleted": Occasion(
        when="Before a task is completed.",
        told={
            "task_id": "Its id.",
            "task_subject": "Its subject.",
            "task_description": "Its description.",
        },
        at_times=_TEAM,
        blocked="The task is not completed, and the model reads the reason.",
    ),
    "SessionStart": Occasion(
        when="A session begins, or its conversation was summarised.",
        told={"source": "`startup`, `resume`, `clear` or `compact`."},
        at_times={"model": "The model of the lead; not after `compact`."},
    ),
    "SessionEnd": Occasion(
        when="A session ends.", told={"reason": "`clear`, `prompt_input_exit` or `other`."}
    ),
    "PreCompact": Occasion(
        when="Before a conversation is summarised.",
        told={
            "trigger": "`manual` or `auto`.",
            "custom_instructions": "What the person wants the summary to hold.",
        },
        blocked="`/compact` is refused; where the window is full the person is only told.",
    ),
    "Notification": Occasion(
        when="A person is waited for.",
        told={
            "message": "A sentence for them.",
            "title": "A title for it.",
            "notification_type": "`permission_prompt`, `elicitation_dialog` or `idle_prompt`.",
        },
    ),
    "WorktreeCreate": Occasion(
        when="An agent needs a worktree. The hook writes the path of the directory to use.",
        told={"name": "What the worktree would be called."},
        blocked="The agent is not started.",
    ),
    "WorktreeRemove": Occasion(
        when="A worktree is gone.", told={"name": "What it was called.", "worktree_path": "Where it was."}
    ),
}
