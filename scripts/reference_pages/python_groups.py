"""Order of the public names on docs/reference/python.md, and members that are not for programs."""

from __future__ import annotations

from typing import NamedTuple

from shoal.app.agents.agent import AgentFields


class NameGroup(NamedTuple):
    title: str
    summary: str
    names: tuple[str, ...]
    text: str = ""


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GROUPS = (
    NameGroup(
        "Run a prompt",
        "one prompt, or a session for several",
        _words("run run_sync open SessionOptions SharedOptions PathText"),
    ),
    NameGroup(
        "Sessions",
        "turns, results and events of a session",
        _words(
            "Session Turn Result ResultReason Usage SessionSpending AgentWorkEvidence ShellCommandResult "
            "RetainedWorktreeWork AgentStatusSnapshot AgentRunStatus AgentEndStatus AgentResult "
            "AgentMessageDeliveryReceipt "
            "StoppedAgentsAndCommands BackgroundShell BackgroundShellResult ShellOutcome FileUndoReport "
            "UnrestoredFile "
            "McpServerStatus McpServerState McpServerScope SlashCommandInvocation"
        ),
    ),
    NameGroup(
        "Agents",
        "agents that your program defines and starts",
        _words("Agent AgentHandle SpawnOptions EffortLevel MemoryScope AgentResources"),
    ),
    NameGroup(
        "Teams",
        "members, tasks and mail",
        _words(
            "Team TeamResumption TeamReport Member MemberState Task TaskStatus MailMessage TeammateMode "
            "TeammateForm IdleReason"
        ),
    ),
    NameGroup(
        "Workflows",
        "plans in Python whose steps survive a crash",
        _words("workflow WorkflowDefinition Workflow WorkflowSession ShellStepResult"),
    ),
    NameGroup(
        "Budgets",
        "limits for several sessions",
        _words("Budget LimitKind"),
    ),
    NameGroup(
        "Tools",
        "functions that agents call",
        _words(
            "tool ToolDecorator PythonTool Tool ToolContext ProgressCallback ToolOutput ToolSchema ToolName "
            "ToolRule ToolEntry current_cwd "
            "current_identity current_member acting_as HasCwd AgentIdentity"
        ),
    ),
    NameGroup(
        "Questions and permissions",
        "questions of agents, answered in code",
        _words(
            "Question PermissionQuestion ChoiceQuestion MultipleChoice ChoiceOption PlanApprovalQuestion "
            "Answer AllowAnswer RememberScope PermissionSuggestion AddPermissionRulesSuggestion "
            "AddDirectoriesPermissionSuggestion SetPermissionModeSuggestion SuggestedPermissionRule "
            "RuleBehavior RuleDestination DenyAnswer ChoiceAnswer PlanApprovedAnswer PermissionMode "
            "RequestedPermissionMode QuestionHandler"
        ),
        "`on_question=` takes a function that gets a `Question` and returns an `Answer`. The methods of "
        "a question build its answers.",
    ),
    NameGroup(
        "Hooks",
        "functions that run on events and can decide",
        _words(
            "Hooks HookEvent HookEntry HookFunction HookInput HookEffort HookOutput AddedContextOutput "
            "ToolCallDecisionOutput PermissionAnswerOutput PermissionAnswer ToolResultOutput "
            "DeniedCallOutput SessionStartOutput WorktreeOutput HookDecision Hook"
        ),
        "`hooks=` takes functions by event.",
    ),
    NameGroup(
        "Models",
        "your own model, and models for tests",
        _words(
            "Model ModelCard TokenPrice LongPromptPrice ModelRequest WebSearchOptions ModelReply StopReason "
            "DeltaListener StreamDelta ModelAttemptStartedDelta TextDelta ThinkingDelta "
            "ToolInputProgressDelta ModelRetryScheduledDelta Message TextBlock ToolUseBlock "
            "ToolResultBlock messages ScriptedModel ReplayModel"
        ),
    ),
    NameGroup(
        "Stores and clocks",
        "where state is stored, and the time",
        _words("Store FileStore MemoryStore Clock SystemClock Deadline"),
    ),
    NameGroup(
        "Events and errors",
        "everything that happens, and everything that is raised",
        _words(
            "Event events Schedule ScheduleEndReason SessionId AgentId AgentName TaskId EntryId RequestId "
            "ShoalError RunFailed SettingsError errors"
        ),
    ),
)
HOOK_TYPE_SUFFIXES = ("Input", "HookOutput")
"""Endings of the types of one event; a table at the end of the group lists them."""
_STORE = _words(
    "aclose create_session directory durable find_latest_session find_session fork_session home "
    "is_session_live list_session_questions open_questions "
    "list_sessions load_signing_key open_board open_mailboxes open_rosters"
)
INTERNAL = {
    "Agent": _words("extras fields output parsed"),
    "Budget": _words("attach_loop count_session limits list_spent meters waiting"),
    "FileStore": _STORE,
    "MemoryStore": _STORE,
    "Store": _STORE,
    "PythonTool": _words(
        "deadline function get_inputs_without is_concurrent is_read_only restrict_inputs run"
    ),
    "ReplayModel": _words("generate_reply"),
    "ScriptedModel": _words("generate_reply"),
    "Session": _words(
        "add_relayed_mcp_servers agent budget ask_side_question can_be_woken can_bypass_permissions clock "
        "config "
        "count_waking_items create_background_task emit_event expects_input has_live_agents "
        "has_running_subagents has_working_agents interrupted_agents is_past_deadline is_slash_command "
        "journal knowledge lifecycle_hooks list_hooks list_shells list_undoable_turns memory "
        "move_to_background note on_item_delivered open_board options parse_slash_command "
        "parse_slash_command_when_ready parts publish_event questions queue_message "
        "queue_message_from_other_session recovered runtime seconds_until_deadline set_delegate_mode "
        "set_end_reason stop_requested stop_shells suggest_prompt supervisor teams translate_errors "
        "undo_history wait_agents_idle wait_for_waking_item withdraw_queued_prompts workflows "
        "instructions is_assistant led_teams list_agent_definitions list_output_styles list_plugins "
        "list_slash_commands open_resumable_store output_style settings skills store "
        "budget_limits budget_seconds_left expect_input expect_no_input find_agent_cost require_open "
        "require_own_loop"
    ),
    "Team": _words("find"),
    "SlashCommandInvocation": _words("command"),
    "Hook": _words("action"),
    "ToolContext": _words("hooks ids processes question_broker results sandbox unreadable_filter workspace"),
    "WorkflowSession": _words("workflows"),
    "Turn": _words("abandon is_abandoned on_abandoned on_error require_own_loop"),
    "WorkflowDefinition": _words("list_parameter_names parse_arguments"),
}
"""Public members that programs should not rely on."""
ATTRIBUTE_TEXTS = {
    "Session.id": "Id of the session, by which it can be resumed.",
    "Session.is_busy": "True while a turn is running.",
    "Session.budget": "Spending and limits of the session with all its agents.",
    "Session.model_card": "The lead's model.",
    "Session.permission_mode": "Current permission mode of the lead.",
    "Session.list_mcp_servers": "Return the state of each MCP server.",
    "Session.list_running_subagents": "Return the sub-agents that are running.",
    "Session.wait_for_mcp_servers": "Wait until every MCP server is connected or has failed.",
    "SystemClock.monotonic": "Return seconds that never decrease.",
    "WorkflowDefinition.description": "First line of the docstring of the function.",
    "messages.user_message": "Return a message of the user with this text.",
    "Event.is_journaled": "True if the event is stored in the journal.",
    "MemoryStore.url": "URL of the store, as `store=` and settings take it.",
    "Tool.schema": "Name, description and arguments, as shown to models.",
    "PythonTool.schema": "Name, description and arguments, as shown to models.",
}
"""Descriptions of members whose definitions have none."""
OPTION_TYPES: dict[str, type] = {"Agent": AgentFields}
"""TypedDict of the keywords of a constructor, if it has no section."""
