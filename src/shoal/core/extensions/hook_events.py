"""Descriptions of the hook events: when each fires, its fields, and the effect of blocking it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from shoal.core.extensions.hooks import HookEvent


class HookEventDescription(Struct, frozen=True, kw_only=True):
    when: str
    fields: Mapping[str, str] = {}
    """Fields in addition to the common ones."""
    optional_fields: Mapping[str, str] = {}
    """Fields that are present only if they have a value."""
    on_block: str = "Nothing but that the person is told: it happens all the same."


COMMON_FIELDS: Mapping[str, str] = {
    "session_id": "The session.",
    "transcript_path": "The file of the lead's conversation; empty where none is kept.",
    "cwd": "The directory the agent works in.",
    "permission_mode": "The mode it works in.",
    "hook_event_name": "The event.",
}
AGENT_FIELDS: Mapping[str, str] = {
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

HOOK_EVENT_DESCRIPTIONS: Mapping[HookEvent, HookEventDescription] = {
    "PreToolUse": HookEventDescription(
        when="Before a tool call, and before its permission is looked at.", fields=_CALL, on_block=_NOT_MADE
    ),
    "PostToolUse": HookEventDescription(
        when="After a tool call.",
        fields={**_CALL, "tool_response": "What it gave back: `content`, the text, and what the tool adds."},
        on_block="The model reads the reason behind the result.",
    ),
    "PostToolUseFailure": HookEventDescription(
        when="After a tool call that failed.",
        fields={**_CALL, "error": "The text of the failure."},
        on_block="The model reads the reason behind the failure.",
    ),
    "PermissionRequest": HookEventDescription(
        when="Before a person is asked about a call.", fields=_CALL, on_block=_NOT_MADE
    ),
    "UserPromptSubmit": HookEventDescription(
        when="A person says something to an agent.",
        fields={"prompt": "What was said."},
        on_block="The prompt is erased, and the person is told.",
    ),
    "Stop": HookEventDescription(when="The lead would stop.", fields=_STOPPING, on_block=_GOES_ON),
    "SubagentStart": HookEventDescription(
        when="Before the first step of an agent; not of one that is resumed.", fields=_TRANSCRIPT
    ),
    "SubagentStop": HookEventDescription(
        when="Any agent but the lead would stop.", fields={**_STOPPING, **_TRANSCRIPT}, on_block=_GOES_ON
    ),
    "TeammateIdle": HookEventDescription(when="A teammate would go idle.", fields=_TEAM, on_block=_GOES_ON),
    "TaskCreated": HookEventDescription(
        when="Before a task is on the board.",
        fields={"task_subject": "Its subject.", "task_description": "Its description."},
        optional_fields=_TEAM,
        on_block="The task is not created, and the model reads the reason.",
    ),
    "TaskCompleted": HookEventDescription(
        when="Before a task is completed.",
        fields={
            "task_id": "Its id.",
            "task_subject": "Its subject.",
            "task_description": "Its description.",
        },
        optional_fields=_TEAM,
        on_block="The task is not completed, and the model reads the reason.",
    ),
    "SessionStart": HookEventDescription(
        when="A session begins, or its conversation was summarised.",
        fields={"source": "`startup`, `resume`, `clear` or `compact`."},
        optional_fields={"model": "The model of the lead; not after `compact`."},
    ),
    "SessionEnd": HookEventDescription(
        when="A session ends.", fields={"reason": "`clear`, `prompt_input_exit` or `other`."}
    ),
    "PreCompact": HookEventDescription(
        when="Before a conversation is summarised.",
        fields={
            "trigger": "`manual` or `auto`.",
            "custom_instructions": "What the person wants the summary to hold.",
        },
        on_block="`/compact` is refused; where the window is full the person is only told.",
    ),
    "Notification": HookEventDescription(
        when="A person is waited for.",
        fields={
            "message": "A sentence for them.",
            "title": "A title for it.",
            "notification_type": "`permission_prompt`, `elicitation_dialog` or `idle_prompt`.",
        },
    ),
    "WorktreeCreate": HookEventDescription(
        when="An agent needs a worktree. The hook writes the path of the directory to use.",
        fields={"name": "What the worktree would be called."},
        on_block="The agent is not started.",
    ),
    "WorktreeRemove": HookEventDescription(
        when="A worktree is gone.", fields={"name": "What it was called.", "worktree_path": "Where it was."}
    ),
}
