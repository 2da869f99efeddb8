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
    on_block: str = "The event still happens, and the user gets a notice."


COMMON_FIELDS: Mapping[str, str] = {
    "session_id": "The session.",
    "transcript_path": "Path of the lead's transcript; empty if none is stored.",
    "cwd": "The agent's working directory.",
    "permission_mode": "The permission mode.",
    "hook_event_name": "The event.",
}
LATER_FIELDS: Mapping[str, str] = {
    "prompt_id": "The user's prompt that the lead is working on; absent before the first prompt.",
    "effort": "For events of the agent's loop: an object with the thinking effort in `level`; absent if "
    "thinking is off.",
}
"""Fields of every event that are present only if they have a value."""
AGENT_FIELDS: Mapping[str, str] = {
    "agent_id": "The agent that the event is about.",
    "agent_type": "Its type.",
}
"""Present for every agent except the lead."""
_CALL = {
    "tool_name": "The tool.",
    "tool_input": "The input from the model.",
    "tool_use_id": "The id of the tool call.",
}
_TRANSCRIPT = {"agent_transcript_path": "Path of the agent's transcript."}
_STOPPING = {
    "stop_hook_active": "True if a hook has already made this turn continue.",
    "last_assistant_message": "The agent's last message.",
}
_TEAM = {"team_name": "The team.", "teammate_name": "The teammate that does the work."}
_NOT_MADE = "The call does not run, and the model gets the reason."
_GOES_ON = "The agent gets the reason and continues, at most 8 times in a row."

HOOK_EVENT_DESCRIPTIONS: Mapping[HookEvent, HookEventDescription] = {
    "PreToolUse": HookEventDescription(
        when="Before a tool call and its permission check.", fields=_CALL, on_block=_NOT_MADE
    ),
    "PostToolUse": HookEventDescription(
        when="After a tool call.",
        fields={
            **_CALL,
            "tool_response": "The result: the fields that Claude Code documents, and more.",
        },
        on_block="The model gets the reason after the result.",
    ),
    "PostToolUseFailure": HookEventDescription(
        when="After a tool call that failed.",
        fields={**_CALL, "error": "The text of the error."},
        on_block="The model gets the reason after the error.",
    ),
    "PermissionRequest": HookEventDescription(
        when="Before Shoal asks the user to allow a call.", fields=_CALL, on_block=_NOT_MADE
    ),
    "UserPromptSubmit": HookEventDescription(
        when="A user sends a prompt to an agent.",
        fields={"prompt": "The text of the prompt."},
        on_block="The prompt is removed, and the user gets a notice.",
    ),
    "Stop": HookEventDescription(when="The lead is about to stop.", fields=_STOPPING, on_block=_GOES_ON),
    "SubagentStart": HookEventDescription(
        when="Before an agent's first step, but not when it is resumed.", fields=_TRANSCRIPT
    ),
    "SubagentStop": HookEventDescription(
        when="An agent other than the lead is about to stop.",
        fields={**_STOPPING, **_TRANSCRIPT},
        on_block=_GOES_ON,
    ),
    "TeammateIdle": HookEventDescription(
        when="A teammate is about to become idle.", fields=_TEAM, on_block=_GOES_ON
    ),
    "TaskCreated": HookEventDescription(
        when="Before a task is created.",
        fields={"task_subject": "Its subject.", "task_description": "Its description."},
        optional_fields=_TEAM,
        on_block="The task is not created, and the model gets the reason.",
    ),
    "TaskCompleted": HookEventDescription(
        when="Before a task is completed.",
        fields={
            "task_id": "Its id.",
            "task_subject": "Its subject.",
            "task_description": "Its description.",
        },
        optional_fields=_TEAM,
        on_block="The task is not completed, and the model gets the reason.",
    ),
    "SessionStart": HookEventDescription(
        when="A session has started, or its conversation was summarized.",
        fields={"source": "`startup`, `resume`, `fork`, `clear` or `compact`."},
        optional_fields={"model": "The lead's model; absent after `compact`."},
    ),
    "Setup": HookEventDescription(
        when="A person starts Shoal with `--init`, `--init-only` or `--maintenance`.",
        fields={"trigger": "`init` or `maintenance`."},
    ),
    "SessionEnd": HookEventDescription(
        when="A session ends.", fields={"reason": "`clear`, `prompt_input_exit` or `other`."}
    ),
    "PreCompact": HookEventDescription(
        when="Before a conversation is summarized.",
        fields={
            "trigger": "`manual` or `auto`.",
            "custom_instructions": "The user's instructions for the summary.",
        },
        on_block="`/compact` is refused; if the window is full, the user only gets a notice.",
    ),
    "Notification": HookEventDescription(
        when="Shoal is waiting for the user.",
        fields={
            "message": "The notification text.",
            "title": "The notification title.",
            "notification_type": "`permission_prompt`, `elicitation_dialog` or `idle_prompt`.",
        },
    ),
    "WorktreeCreate": HookEventDescription(
        when="An agent needs a worktree. The hook prints the path of the directory to use.",
        fields={"name": "The name of the worktree."},
        on_block="The agent is not started.",
    ),
    "WorktreeRemove": HookEventDescription(
        when="A worktree was removed.",
        fields={"name": "The name of the worktree.", "worktree_path": "Its former path."},
    ),
    "ConfigChange": HookEventDescription(
        when="A settings file changed. Shoal checks before each call.",
        fields={
            "source": "`user_settings`, `project_settings`, `local_settings` or `policy_settings`.",
            "file_path": "The file.",
        },
        on_block="The session keeps its settings until the next change. Managed files always apply.",
    ),
    "StopFailure": HookEventDescription(
        when="The model could not answer, so the turn ends.",
        fields={
            "error": "`rate_limit`, `overloaded`, `authentication_failed`, `invalid_request`, "
            "`server_error` or `unknown`.",
            "error_details": "The text of the error.",
        },
    ),
    "PostCompact": HookEventDescription(
        when="A conversation was summarized.",
        fields={"trigger": "`manual` or `auto`.", "compact_summary": "The summary."},
    ),
    "PostToolBatch": HookEventDescription(
        when="After all calls in one reply.",
        fields={"tool_calls": "A list of objects with `tool_name`, `tool_input` and `tool_use_id`."},
        on_block="The turn ends before the next request to the model.",
    ),
    "PermissionDenied": HookEventDescription(
        when="A call was denied by a rule, by the mode, or because nobody answered the question.",
        fields={**_CALL, "reason": "The reason that the model gets."},
    ),
    "UserPromptExpansion": HookEventDescription(
        when="Before a command that a person typed becomes a prompt.",
        fields={
            "expansion_type": "`slash_command` or `mcp_prompt`.",
            "command_name": "The command.",
            "command_args": "Its arguments.",
            "command_source": "Its file, or `mcp`.",
            "prompt": "The text as typed.",
        },
        on_block="The command does not run, and the user gets a notice.",
    ),
    "InstructionsLoaded": HookEventDescription(
        when="An instruction file became part of a prompt or a conversation.",
        fields={
            "file_path": "The file.",
            "memory_type": "`User`, `Project` or `Local`.",
            "load_reason": "`session_start`, `nested_traversal`, `path_glob_match` or `include`.",
        },
    ),
}
