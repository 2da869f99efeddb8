"""Descriptions of the environment variables that are settings; `app/settings/settings.py` names them."""

from __future__ import annotations

from reference_pages.doc_text import MissingDescription
from shoal.app.settings import provider_credentials, settings

VARIABLES = {
    "SHOAL_HOME": "Directory for all state; default: `CLAUDE_CONFIG_DIR`, then `~/.claude`.",
    "CLAUDE_CONFIG_DIR": "The same, shared with other programs.",
    "SHOAL_MODEL": "The model to use if no flag names one.",
    "ANTHROPIC_MODEL": "The same, with lower precedence.",
    "SHOAL_SUBAGENT_MODEL": "The model of every sub-agent; overrides its definition.",
    "CLAUDE_CODE_SUBAGENT_MODEL": "The same, with lower precedence.",
    "SHOAL_COORDINATOR_MODE": "`1`: the lead only starts, messages and stops agents; `0`: it works normally.",
    "CLAUDE_CODE_COORDINATOR_MODE": "The same, with lower precedence.",
    "SHOAL_FORK_SUBAGENT": "`1` turns forks on, as the setting `shoal.forks` does.",
    "FEATURE_FORK_SUBAGENT": "The same, with lower precedence.",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "`1`: a library reads the session state, so Shoal does not send "
    "it.",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "`1`: Shoal sends the session state anyway.",
    "ANTHROPIC_API_KEY": "The key for Anthropic.",
    "ANTHROPIC_AUTH_TOKEN": "A token to use instead of the key.",
    "ANTHROPIC_BASE_URL": "Base URL of another server with the Messages API.",
    "OPENAI_API_KEY": "The key for OpenAI, or for your own server.",
    "OPENAI_BASE_URL": "Base URL of another server with the Chat Completions or Responses API.",
    "OPENROUTER_API_KEY": "The key for OpenRouter.",
    "OLLAMA_HOST": "The address that Ollama listens on.",
}


def list_variables() -> dict[str, str]:
    read = {
        *settings._HOME_VARIABLES,
        *settings._MODEL_VARIABLES,
        *settings._SUBAGENT_MODEL_VARIABLES,
        *settings._COORDINATOR_VARIABLES,
        *settings._FORK_VARIABLES,
        *settings._SESSION_STATE_VARIABLES,
        *provider_credentials.ACCESS_VARIABLES.values(),
    }
    if read != set(VARIABLES):
        raise MissingDescription(
            f"reference_pages/variables.py and app/settings/settings.py differ: {read ^ set(VARIABLES)}"
        )
    return VARIABLES
