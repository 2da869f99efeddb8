"""Variables in the key `env`: those that Shoal reads there, in the shell only, or not at all."""

from __future__ import annotations

_CLAUDE_PREFIXES = (
    "ANTHROPIC_", "API_", "BASH_", "CCR_", "CLAUDE_", "CLOUD_ML_", "DISABLE_", "ENABLE_", "MAX_", "MCP_",
    "OTEL_LOG_", "VERTEX_",
)  # fmt: skip
"""Prefixes of the variables that Claude Code reads."""
_OTHER_CLAUDE_NAMES = frozenset(
    {
        "DO_NOT_TRACK", "FALLBACK_FOR_ALL_PRIMARY_MODELS", "FORCE_AUTOUPDATE_PLUGINS", "IS_DEMO",
        "SLASH_COMMAND_TOOL_CHAR_BUDGET", "TASK_MAX_OUTPUT_LENGTH", "USE_BUILTIN_RIPGREP",
    }
)  # fmt: skip
"""Variables that Claude Code reads, without such a prefix, and Shoal does not."""
EFFECTIVE_ENV_NAMES = frozenset(
    {
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_DEFAULT_FABLE_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH",
        "BASH_MAX_TIMEOUT_MS", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "CLAUDE_CODE_DISABLE_AUTO_MEMORY",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SHELL",
        "CLAUDE_CODE_SUBAGENT_MODEL", "CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "CLAUDE_CODE_TASK_LIST_ID",
        "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_ENV_FILE",
        "DISABLE_AUTO_COMPACT", "ENABLE_TOOL_SEARCH", "HTTPS_PROXY", "HTTP_PROXY", "MAX_MCP_OUTPUT_TOKENS",
        "MAX_THINKING_TOKENS", "MCP_CONNECTION_NONBLOCKING", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT", "NO_PROXY",
        "OLLAMA_HOST",
        "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY", "SHOAL_MODEL", "SHOAL_SUBAGENT_MODEL",
    }
)  # fmt: skip
"""Variables that Shoal reads in the key `env`."""
SHELL_ENV_NAMES = frozenset(
    {
        "CLAUDE_CODE_COORDINATOR_MODE", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "CLAUDE_CONFIG_DIR",
        "FEATURE_FORK_SUBAGENT", "IS_SANDBOX", "NO_COLOR", "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "OTEL_METRICS_EXPORTER", "OTEL_SDK_DISABLED",
        "OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER", "SHOAL_COORDINATOR_MODE", "SHOAL_FORK_SUBAGENT",
        "SHOAL_HOME", "SHOAL_PLAIN", "SHOAL_STORE", "SHOAL_WEB_TOKEN",
    }
)  # fmt: skip
"""Variables that Shoal reads in the shell only."""


def explain_unused_variable(name: str) -> str | None:
    """Return why a variable in `env` has no effect on Shoal itself."""
    if name == "NODE_EXTRA_CA_CERTS":
        return "Shoal uses the system's certificates; commands get it"
    if name in EFFECTIVE_ENV_NAMES:
        return None
    if name in SHELL_ENV_NAMES or name.startswith("OTEL_EXPORTER_"):
        return "set it in the shell; Shoal does not read it here, but commands get it"
    is_unused = name.startswith(_CLAUDE_PREFIXES) or name in _OTHER_CLAUDE_NAMES
    return "Shoal does not use it; commands get it" if is_unused else None
