"""Descriptions of the environment variables that are settings; `app/settings/settings.py` names them."""

from __future__ import annotations

from reference_pages.doc_text import MissingDescription
from shoal.app.settings import settings

VARIABLES = {
    "SHOAL_HOME": "Where all state lives; else `CLAUDE_CONFIG_DIR`, else `~/.claude`.",
    "CLAUDE_CONFIG_DIR": "The same, shared with other programs.",
    "SHOAL_MODEL": "The model to ask where no flag names one.",
    "ANTHROPIC_MODEL": "The same, weaker.",
    "SHOAL_SUBAGENT_MODEL": "The model of every agent that an agent starts, whatever its definition says.",
    "CLAUDE_CODE_SUBAGENT_MODEL": "The same, weaker.",
    "SHOAL_COORDINATOR_MODE": "`1` or `0`: whether the lead only starts, tells and stops agents.",
    "CLAUDE_CODE_COORDINATOR_MODE": "The same, weaker.",
    "SHOAL_FORK_SUBAGENT": "`1` turns forks on, as the setting `shoal.forks` does.",
    "FEATURE_FORK_SUBAGENT": "The same, weaker.",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE": "`1`: a library reads how the session stands, so it is not told.",
    "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "`1`: it is told all the same.",
    "ANTHROPIC_API_KEY": "The key for Anthropic.",
    "ANTHROPIC_AUTH_TOKEN": "A token in its place.",
    "ANTHROPIC_BASE_URL": "Another address that speaks the Messages protocol.",
    "OPENAI_API_KEY": "The key for OpenAI, or for a server of your own.",
    "OPENAI_BASE_URL": "Another address that speaks Chat Completions or Responses.",
    "OPENROUTER_API_KEY": "The key for OpenRouter.",
    "OLLAMA_HOST": "Where Ollama listens.",
}


def list_variables() -> dict[str, str]:
    read = {
        *settings._HOME_VARIABLES,
        *settings._MODEL_VARIABLES,
        *settings._SUBAGENT_MODEL_VARIABLES,
        *settings._COORDINATOR_VARIABLES,
        *settings._FORK_VARIABLES,
        *settings._SESSION_STATE_VARIABLES,
        *settings._ACCESS_VARIABLES.values(),
    }
    if read != set(VARIABLES):
        raise MissingDescription(
            f"reference_pages/variables.py and app/settings/settings.py differ: {read ^ set(VARIABLES)}"
        )
    return VARIABLES
