"""Pydantic AI: https://ai.pydantic.dev. It is not instrumented (no Logfire)."""

import sys

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from questions import CHILD, FINAL, add_up, answer, history

PACKAGES = ("pydantic-ai-slim", "openai")
_UNLIMITED = UsageLimits(request_limit=None)


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


def _create_scripted_model(rounds: int) -> FunctionModel:
    async def choose_reply(messages, _):
        done = (len(messages) - 1) // 2
        if done < rounds:
            return ModelResponse(parts=[ToolCallPart("add", {"a": done, "b": 1})])
        return ModelResponse(parts=[TextPart(FINAL)])

    return FunctionModel(choose_reply)


def run(rounds: int):
    agent = Agent(_create_scripted_model(rounds), system_prompt="You add.", tools=[add])

    async def run_agent():
        return (await agent.run("go", usage_limits=_UNLIMITED)).output

    return run_agent


def crowd(agents: int, rounds: int):
    child = Agent(_create_scripted_model(rounds), system_prompt="You add.", tools=[add])
    seen = 0

    async def choose_reply(messages, _):
        nonlocal seen
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("delegate", {"task": CHILD}) for _ in range(agents)])
        results = [part for part in messages[-1].parts if part.part_kind == "tool-return"]
        seen = sum(FINAL in str(part.content) for part in results)
        return ModelResponse(parts=[TextPart(FINAL)])

    parent = Agent(FunctionModel(choose_reply), system_prompt="You delegate.")

    @parent.tool_plain
    async def delegate(task: str) -> str:
        """Delegate a task."""
        return (await child.run(task, usage_limits=_UNLIMITED)).output

    async def run_parent():
        await parent.run("go", usage_limits=_UNLIMITED)
        return seen

    return run_parent


_SHARED = _create_scripted_model(1)


def waiting(number: int):
    messages = [
        ModelRequest(parts=[UserPromptPart(text)])
        if role == "user"
        else ModelResponse(parts=[TextPart(text)])
        for role, text in history(number)
    ]
    return Agent(_SHARED, system_prompt=f"You are agent {number}.", tools=[add]), messages


_MODELS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    if base not in _MODELS:
        provider = OpenAIProvider(base_url=f"{base}/v1", api_key="bench")
        _MODELS[base] = OpenAIChatModel("mock", provider=provider)
    agent = Agent(_MODELS[base], system_prompt="You add.", tools=[add])

    async def run_agent():
        if not stream:
            return (await agent.run(f"ROUNDS={rounds}", usage_limits=_UNLIMITED)).output

        async def drain_events(_, events):
            async for _ in events:
                pass

        asked = agent.run(f"ROUNDS={rounds}", usage_limits=_UNLIMITED, event_stream_handler=drain_events)
        return (await asked).output

    return run_agent


if __name__ == "__main__":
    answer(sys.modules[__name__])
