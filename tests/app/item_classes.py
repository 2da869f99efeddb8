"""Items that Shoal reads and that have no case of their own, each with the reason."""

from __future__ import annotations

_MANAGED_RULES = "app/test_managed_switches.py::test_with_managed_rules_only_no_other_rule_allows_a_call"
_SIDELOAD = "app/test_managed_switches.py::test_options_that_load_extensions_are_refused"
_PLUGIN_ONLY = "app/test_managed_switches.py::test_locked_parts_come_only_from_plugins"
_HTTP_LIMITS = "app/test_foreign_settings.py::test_http_hooks_use_only_permitted_urls_and_variables"
_LIMIT_MET = "core/test_budget.py::test_limits_apply_per_agent_per_type_and_in_total"
_TIME_LIMIT_MET = "core/test_budget.py::test_time_is_limited_for_the_session_and_for_one_agent"
_SHARED_BUDGET = (
    "team/test_process_members.py::test_spending_of_a_process_member_counts_for_the_shared_budget"
)
_LIMITS_OF_SETTINGS = "app/test_session_limits.py::test_limits_come_from_settings_and_flags_override_them"
_SHARED_SLOTS = "team/test_agent_slot_queue.py::test_process_members_share_the_concurrency_cap"
_DEADLINE = "cli/test_cli_headless.py::test_the_deadline_exits_4"
_PREVIEW = "app/test_sub_agents.py::test_spawning_many_agents_in_one_message_asks_first_with_a_cost_estimate"
_REPEATED_CALLS = (
    "cli/test_endless_loops.py::test_a_sub_agent_in_a_loop_ends_alone_and_the_run_ends_with_code_4"
)
_UNPRODUCTIVE_MESSAGES = "cli/test_endless_loops.py::test_members_that_only_talk_to_each_other_are_ended"
_LEAD_DEFINITION = "app/test_shared_settings.py::test_the_lead_takes_prompt_tools_and_denials_of_an_agent"
_BARE = "app/test_bare_sessions.py::test_a_bare_session_uses_no_extension_but_every_permission_rule"
_NO_SKILLS = "app/test_bare_sessions.py::test_skills_and_commands_can_be_disabled"
_CHILD_KEYS = "app/test_foreign_variables.py::test_the_shell_background_work_and_keys_of_children"
_ROLE_FIELDS = "app/test_team_templates.py::test_a_field_of_a_role_narrows_its_member"
_TEMPLATE_BUDGET = "cli/test_team_commands.py::test_the_budget_of_a_template_holds_for_the_whole_team"
PROVEN_ELSEWHERE = {
    **dict.fromkeys(
        (
            "variable RAY_USE_TLS",
            "variable RAY_TLS_SERVER_CERT",
            "variable RAY_TLS_SERVER_KEY",
            "variable RAY_TLS_CA_CERT",
        ),
        "backends/test_member_listener.py::"
        "test_a_machine_without_a_certificate_of_the_authority_gets_no_connection",
    ),
    "foreign allowManagedHooksOnly": (
        "app/test_shared_settings.py::test_with_managed_hooks_only_no_other_hook_runs"
    ),
    "foreign allowManagedMcpServersOnly": (
        "app/test_shared_settings.py::"
        "test_with_managed_servers_only_the_list_of_every_file_must_permit_a_server"
    ),
    "foreign allowManagedPermissionRulesOnly": _MANAGED_RULES,
    "foreign allowManagedReadPathsOnly": (
        "app/test_readable_regions.py::test_managed_files_can_limit_what_is_shown"
    ),
    "foreign channelsEnabled": (
        "app/test_managed_switches.py::test_channels_are_refused_if_a_managed_file_turns_them_off"
    ),
    "foreign disableSideloadFlags": _SIDELOAD,
    "foreign strictPluginOnlyCustomization": _PLUGIN_ONLY,
    "foreign mcpServers": _PLUGIN_ONLY,
    "foreign allowedHttpHookUrls": _HTTP_LIMITS,
    "foreign httpHookAllowedEnvVars": _HTTP_LIMITS,
    "settings disabledMcpServers": (
        "mcp_client/test_lead_servers.py::test_a_server_that_settings_or_flags_forbid_is_not_started"
    ),
    **dict.fromkeys(
        ("settings disableSkillShellExecution", "foreign disableSkillShellExecution"),
        "skills/test_skill_fields.py::test_commands_in_skills_do_not_run_if_a_file_disables_them",
    ),
    **dict.fromkeys(
        ("settings skillOverrides", "foreign skillOverrides"),
        "skills/test_skill_fields.py::test_skill_overrides_of_any_file_decide_who_is_offered_a_skill",
    ),
    # Amounts: one budget in the lead's process counts for all positions.
    "settings shoal.max_budget_usd": _SHARED_BUDGET,
    "settings shoal.max_total_tokens": _SHARED_BUDGET,
    "settings shoal.max_requests": _SHARED_BUDGET,
    "settings shoal.max_seconds": _TIME_LIMIT_MET,
    "settings shoal.max_concurrent": _SHARED_SLOTS,
    "settings shoal.fan_out_preview": _PREVIEW,
    "settings shoal.max_repeated_calls": _REPEATED_CALLS,
    "settings shoal.max_unproductive_messages": _UNPRODUCTIVE_MESSAGES,
    **dict.fromkeys((f"settings shoal.agent_limits.{unit}" for unit in ("usd", "tokens")), _LIMIT_MET),
    **dict.fromkeys((f"settings shoal.agent_type_limits.*.{unit}" for unit in ("usd", "tokens")), _LIMIT_MET),
    "settings shoal.agent_limits.seconds": _TIME_LIMIT_MET,
    "settings shoal.agent_type_limits.*.seconds": _TIME_LIMIT_MET,
    "option max_budget_usd": _LIMITS_OF_SETTINGS,
    "option max_total_tokens": _LIMITS_OF_SETTINGS,
    "option deadline": _DEADLINE,
    "option budget": "library/test_tenants.py::test_several_sessions_share_one_budget",
    "option environ": (
        "library/test_tenants.py::test_two_tenants_at_once_have_their_own_keys_homes_and_addresses"
    ),
    "option home": (
        "library/test_tenants.py::test_two_tenants_at_once_have_their_own_keys_homes_and_addresses"
    ),
    "flag --max-budget-usd": _LIMITS_OF_SETTINGS,
    "flag --max-total-tokens": _LIMITS_OF_SETTINGS,
    "flag --task-budget": _LIMITS_OF_SETTINGS,
    "flag --deadline": _DEADLINE,
    # What the session uses, decided once for all positions
    "settings agent": _LEAD_DEFINITION,
    "option agent": _LEAD_DEFINITION,
    "flag --agent": _LEAD_DEFINITION,
    "option bare": _BARE,
    "flag --bare": _BARE,
    "option slash_commands": _NO_SKILLS,
    "flag --disable-slash-commands": _NO_SKILLS,
    "option skills": "app/test_bare_sessions.py::test_only_the_named_skills_are_offered",
    "settings availableModels": "app/test_foreign_variables.py::test_only_available_models_are_used",
    "skill hooks": (
        "skills/test_skill_fields.py::test_hooks_of_a_skill_run_from_its_first_use_to_the_end_of_the_session"
    ),
    "event UserPromptExpansion": "app/test_later_hook_events.py::test_a_hook_blocks_a_typed_command",
    "event PostToolBatch": (
        "app/test_later_hook_events.py::test_a_hook_after_a_batch_of_calls_ends_the_turn"
    ),
    "event ConfigChange": (
        "app/test_later_hook_events.py::test_a_hook_is_told_of_a_changed_settings_file_and_can_keep_it_out"
    ),
    # Team templates
    "template roles.mode": _ROLE_FIELDS,
    "template roles.isolation": _ROLE_FIELDS,
    "template budget.usd": _TEMPLATE_BUDGET,
    "template budget.tokens": _TEMPLATE_BUDGET,
    # Child processes
    "variable CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": _CHILD_KEYS,
    **dict.fromkeys(
        (
            f"variable {name}"
            for name in (
                "ANTHROPIC_FOUNDRY_API_KEY",
                "AWS_ACCESS_KEY_ID",
                "AWS_BEARER_TOKEN_BEDROCK",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AZURE_CLIENT_SECRET",
                "GOOGLE_APPLICATION_CREDENTIALS",
            )
        ),
        _CHILD_KEYS,
    ),
    # Other agents' work
    "settings shoal.file_leases": (
        "app/test_file_leases.py::test_a_file_changed_by_an_agent_is_leased_until_the_agent_ends"
    ),
    "settings shoal.trust_unsigned_mail": (
        "team/test_signed_process_mail.py::test_a_process_member_signs_its_mail_and_does_not_obey_unsigned_mail"
    ),
}


def _list_items(kind: str, names: str) -> frozenset[str]:
    return frozenset(f"{kind} {name}" for name in names.split())


NOT_NARROWING = {
    "it carries other items, which are listed themselves": (
        _list_items("settings", "env")
        | _list_items("flag", "--agents --settings --mcp-config --plugin-dir")
        | _list_items("option", "agents settings mcp_config plugin_dirs membership relayed_servers")
        | _list_items("agent", "skills")
        | _list_items("template", "roles budget")
        | _list_items("plugin", "agents skills commands hooks mcpServers")
        | _list_items("foreign", "serverCommand serverName serverUrl")
        | _list_items(
            "hook",
            "command args shell url headers allowedEnvVars timeout prompt model server tool input",
        )
    ),
    "it allows more": (
        _list_items(
            "settings",
            "permissions.allow permissions.additionalDirectories mcpServers disableAllHooks"
            " shoal.sandbox.autoAllow shoal.sandbox.writable shoal.unattended_allow shoal.channels"
            " shoal.teammate_programs shoal.plugins shoal.agent_cwd shoal.implicit_team shoal.forks"
            " shoal.workflow_tool",
        )
        | _list_items("foreign", "allowRead allowWrite")
        | _list_items(
            "flag",
            "--allowedTools --add-dir --dangerously-skip-permissions --allow-dangerously-skip-permissions"
            " --channels --permission-prompt-tool",
        )
        | _list_items(
            "option",
            "allowed_tools add_dirs skip_permissions allow_bypass channels tools agent_extras attended"
            " on_question",
        )
        | _list_items("variable", "IS_SANDBOX container SHOAL_FORK_SUBAGENT FEATURE_FORK_SUBAGENT")
        | _list_items("agent", "memory")
        | _list_items("skill", "allowed-tools")
        | _list_items("hook", "async asyncRewake")
        | _list_items("output", "async asyncTimeout")
    ),
    "its default is the narrowest value": _list_items(
        "settings", "shoal.plan_approver shoal.worktree_guard shoal.team_depth"
    ),
    "it chooses which of the user's and the project's files are read; managed files always are": (
        _list_items("flag", "--setting-sources") | _list_items("option", "setting_sources")
    ),
    "it changes when or how an agent works, not what it may do": (
        _list_items(
            "template",
            "name description tasks prompt roles.name roles.type roles.prompt roles.resources roles.count",
        )
        | _list_items("template", "roles.model")
        | _list_items(
            "settings",
            "shoal.background_agents shoal.auto_background shoal.assistant shoal.compact_at"
            " shoal.session_memory shoal.request_deadline shoal.stream_gap shoal.outage_patience"
            " shoal.question_patience shoal.output_limit shoal.max_output_tokens shoal.thinking_tokens"
            " shoal.stuck_after shoal.report_tokens shoal.shutdown_grace shoal.stall_after"
            " shoal.teammate_mode shoal.teammate_restarts shoal.mcp_wait shoal.mcp_deadline"
            " shoal.instructions shoal.web_search teammateMode alwaysThinkingEnabled effortLevel"
            " autoCompactEnabled autoMemoryDirectory autoMemoryEnabled claudeMdExcludes attribution.commit"
            " attribution.pr includeCoAuthoredBy language outputStyle plansDirectory",
        )
        | _list_items(
            "flag",
            "--assistant --system-prompt --system-prompt-file --append-system-prompt"
            " --append-system-prompt-file --effort --thinking --max-thinking-tokens --thinking-display"
            " --teammate-mode",
        )
        | _list_items(
            "option",
            "assistant system_prompt append_system_prompt thinking_tokens effort output_schema output"
            " teammate_mode",
        )
        | _list_items(
            "variable",
            "API_TIMEOUT_MS CLAUDE_CODE_DISABLE_AUTO_MEMORY CLAUDE_CODE_MAX_OUTPUT_TOKENS ENABLE_TOOL_SEARCH"
            " MCP_TOOL_TIMEOUT",
        )
        | _list_items("hook", "continueOnBlock")
        | _list_items("flag", "--json-schema")
        | _list_items(
            "agent",
            "name description effort background color initialPrompt acceptance oneShot instructions model",
        )
        | _list_items(
            "skill",
            "name description license compatibility metadata context agent model argument-hint arguments"
            " effort when_to_use",
        )
        | _list_items(
            "event",
            "Stop SubagentStop TeammateIdle PreCompact PostToolUseFailure SubagentStart SessionStart"
            " SessionEnd Notification WorktreeRemove InstructionsLoaded PermissionDenied PostCompact"
            " StopFailure Setup",
        )
        | _list_items(
            "output",
            "reason stopReason suppressOutput systemMessage hookSpecificOutput.additionalContext"
            " hookSpecificOutput.hookEventName hookSpecificOutput.permissionDecisionReason"
            " hookSpecificOutput.decision.message hookSpecificOutput.decision.updatedInput"
            " hookSpecificOutput.worktreePath hookSpecificOutput.retry hookSpecificOutput.initialUserMessage"
            " hookSpecificOutput.sessionTitle",
        )
    ),
    "it is about what a person can type": _list_items("skill", "user-invocable"),
    "it chooses a model": (
        _list_items("settings", "model shoal.model shoal.aliases apiKeyHelper fallbackModel modelOverrides")
        | _list_items(
            "settings",
            " ".join(
                f"shoal.models.*.{name}"
                for name in (
                    "input",
                    "output",
                    "cache_write",
                    "cache_read",
                    "window",
                    "max_output",
                    "images",
                    "tools",
                    "api",
                )
            ),
        )
        | _list_items("flag", "--model --fallback-model --betas")
        | _list_items("option", "model fallback_model betas")
        | _list_items(
            "variable",
            "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL ANTHROPIC_MODEL"
            " CLAUDE_CODE_SUBAGENT_MODEL OLLAMA_HOST OPENAI_API_KEY OPENAI_BASE_URL OPENROUTER_API_KEY"
            " SHOAL_MODEL SHOAL_SUBAGENT_MODEL ANTHROPIC_CUSTOM_HEADERS ANTHROPIC_DEFAULT_FABLE_MODEL"
            " ANTHROPIC_DEFAULT_HAIKU_MODEL ANTHROPIC_DEFAULT_OPUS_MODEL ANTHROPIC_DEFAULT_SONNET_MODEL"
            " ANTHROPIC_SMALL_FAST_MODEL CLAUDE_CODE_OAUTH_TOKEN CLAUDE_CODE_USE_BEDROCK"
            " CLAUDE_CODE_USE_FOUNDRY CLAUDE_CODE_USE_VERTEX",
        )
    ),
    "it is about the session, its files or its output": (
        _list_items(
            "settings",
            "cleanupPeriodDays theme shoal.cluster.address shoal.cluster.cpus shoal.cluster.files"
            " shoal.cluster.lead_host shoal.cluster.uncommitted shoal.cluster.send_keys"
            " shoal.cluster.members_per_process shoal.cluster.fetch_from_remote"
            " shoal.cluster.without_own_hooks"
            " shoal.durable shoal.store shoal.notify shoal.theme shoal.plain"
            " shoal.split_panes shoal.telemetry.enabled shoal.telemetry.content",
        )
        | _list_items(
            "flag",
            "--continue --resume --fork-session --session-id --no-session-persistence --print --record"
            " --output-format --input-format --include-partial-messages --replay-user-messages --verbose"
            " --quiet --plain --debug --debug-file --debug-filter --include-hook-events --ide --name"
            " --worktree --init --init-only --maintenance --no-chrome"
            " --advisor --enable-auto-mode --exclude-dynamic-system-prompt-sections --mcp-debug --prefill"
            " --prompt-suggestions --remote-control-session-name-prefix --tmux",
        )
        | _list_items(
            "option",
            "name team cwd begun clock continue_last debug debug_file debug_filter fork persist record resume"
            " seed session_id setup store title trace",
        )
        | _list_items("agent", "resources")
    ),
    "it describes the machine, the terminal or another program": _list_items(
        "variable",
        "AUTHOR CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS CLAUDE_CODE_SDK_READS_SESSION_STATE CLAUDE_CONFIG_DIR"
        " CLAUDE_CODE_SHELL CLAUDE_ENV_FILE CLAUDE_PROJECT_DIR XDG_CONFIG_HOME"
        " COLORFGBG COLUMNS COMMITTER DISPLAY DYLD_LIBRARY_PATH EMAIL GIT_CONFIG_COUNT GIT_CONFIG_GLOBAL"
        " GIT_CONFIG_NOSYSTEM GIT_CONFIG_SYSTEM GIT_EXEC_PATH GIT_SSL_CAINFO HOME LD_LIBRARY_PATH LINES"
        " NAME NO_COLOR OTEL_EXPORTER_OTLP_ENDPOINT OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
        " OTEL_EXPORTER_OTLP_TRACES_ENDPOINT OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        " OTEL_METRICS_EXPORTER OTEL_RESOURCE_ATTRIBUTES OTEL_SDK_DISABLED OTEL_SERVICE_NAME"
        " OTEL_TRACES_EXPORTER PATH PGPASSFILE PYTHONHOME SSLKEYLOGFILE SSL_CERT_DIR SSL_CERT_FILE"
        " GIT_ALLOW_PROTOCOL GIT_ASKPASS GIT_NO_LAZY_FETCH SSH_ASKPASS_REQUIRE"
        " PYTHONPATH SHELL SHOAL_GUARDIAN SHOAL_HOME SHOAL_PLAIN SHOAL_STORE SSH_AUTH_SOCK TERM TERMCAP"
        " TERM_PROGRAM"
        " TEMP TERM_PROGRAM_VERSION TMP TMPDIR TMUX TMUX_PANE TMUX_TMPDIR TRACEPARENT WAYLAND_DISPLAY"
        " XDG_RUNTIME_DIR traceparent",
    ),
}
"""Items that cannot make the authority of an agent smaller, by reason."""
