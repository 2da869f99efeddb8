"""Environment of agent commands: the user's environment without provider keys."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.core.text.lazy_patterns import compile_on_first_use

# The only list of names that are hidden from commands, which could print them into the conversation.
_PROVIDERS = (
    "ANTHROPIC|OPENAI|AZURE_OPENAI|OPENROUTER|GEMINI|GOOGLE_AI|GOOGLE_GENERATIVE_AI|MISTRAL|GROQ|DEEPSEEK|XAI"
    "|TOGETHER|FIREWORKS|COHERE|PERPLEXITY|CEREBRAS|NVIDIA|OLLAMA|VLLM|MOONSHOT|DASHSCOPE|ZAI|CLAUDE_CODE"
)
_SECRET_NAME = compile_on_first_use(
    rf"(?:{_PROVIDERS})_(?:\w+_)?(?:KEYS?|TOKEN|SECRET|PASSWORD|CUSTOM_HEADERS)(?:_\w+)?"
)

_RUNTIME_MARKS = {
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS": "1",
    "SHOAL": "1",
    # Nobody can type into an editor.
    "GIT_EDITOR": "true",
}


def is_provider_secret_variable(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def build_command_environment(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items() if not is_provider_secret_variable(name)
    } | _RUNTIME_MARKS
