"""Variables that Claude Code reads, and those of them that have an effect in the key `env`."""

from __future__ import annotations

_CLAUDE_PREFIXES = (
    "ANTHROPIC_", "API_", "BASH_", "CLAUDE_", "CLOUD_ML_", "DISABLE_", "ENABLE_", "MAX_", "MCP_", "VERTEX_",
)  # fmt: skip
"""Prefixes of the variables that Claude Code reads."""
EFFECTIVE_ENV_NAMES = frozenset(
    {
        "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_DEFAULT_FABLE_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_DEFAULT_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL", "API_TIMEOUT_MS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH",
        "BASH_MAX_TIMEOUT_MS", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "CLAUDE_CODE_EFFORT_LEVEL", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_SHELL", "CLAUDE_CODE_SUBAGENT_MODEL",
        "CLAUDE_CODE_SUBPROCESS_ENV_SCRUB", "CLAUDE_CODE_TASK_LIST_ID", "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_ENV_FILE", "DISABLE_AUTO_COMPACT",
        "ENABLE_TOOL_SEARCH", "MAX_MCP_OUTPUT_TOKENS", "MAX_THINKING_TOKENS", "MCP_TIMEOUT",
        "MCP_TOOL_TIMEOUT",
    }
)  # fmt: skip
"""Claude Code variables that have an effect in the key `env`."""


def explain_unused_variable(name: str) -> str | None:
    """Return why a variable in `env` has no effect on Shoal itself."""
    if name == "NODE_EXTRA_CA_CERTS":
        return "Shoal uses the system's certificates; commands get it"
    is_unused = name.startswith(_CLAUDE_PREFIXES) and name not in EFFECTIVE_ENV_NAMES
    return "Shoal does not use it; commands get it" if is_unused else None
