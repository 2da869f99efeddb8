"""AutoGen's AgentChat: https://microsoft.github.io/autogen.

Its AgentTool may not be called several times at once (an agent holds its state), so the tool that delegates
creates an agent for each task.
"""

import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import AssistantMessage, CreateResult, ModelInfo, RequestUsage, UserMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from questions import CHILD, FINAL, add_up, answer, arguments, history

PACKAGES = ("autogen-agentchat", "autogen-core", "autogen-ext", "openai")
_INFO = ModelInfo(
    vision=False, function_calling=True, json_output=False, family="unknown", structured_output=False
)
_USAGE = RequestUsage(prompt_tokens=100, completion_tokens=10)


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


def _make_calls(*calls: tuple[str, str]) -> CreateResult:
    content = [FunctionCall(id=f"c{n}", name=name, arguments=given) for n, (name, given) in enumerate(calls)]
    return CreateResult(finish_reason="function_calls", content=content, usage=_USAGE, cached=False)


def _create_client(*replies: CreateResult) -> ReplayChatCompletionClient:
    last = CreateResult(finish_reason="stop", content=FINAL, usage=_USAGE, cached=False)
    return ReplayChatCompletionClient([*replies, last], model_info=_INFO)


def _create_scripted_client(rounds: int) -> ReplayChatCompletionClient:
    return _create_client(*(_make_calls(("add", arguments(done))) for done in range(rounds)))


def _create_agent(client, tools, rounds: int, **given) -> AssistantAgent:
    return AssistantAgent(
        "agent", client, tools=tools, system_message="You add.", max_tool_iterations=rounds + 5, **given
    )


def run(rounds: int):
    agent = _create_agent(_create_scripted_client(rounds), [add], rounds)

    async def run_agent():
        return (await agent.run(task="go")).messages[-1].content

    return run_agent


def crowd(agents: int, rounds: int):
    async def delegate(task: str) -> str:
        """Delegate a task."""
        return (
            (await _create_agent(_create_scripted_client(rounds), [add], rounds).run(task=task))
            .messages[-1]
            .content
        )

    calls = _make_calls(*[("delegate", f'{{"task": "{CHILD}"}}')] * agents)
    parent = _create_agent(_create_client(calls), [delegate], 3)

    async def run_parent():
        messages = (await parent.run(task="go")).messages
        results = [each for each in messages if type(each).__name__ == "ToolCallExecutionEvent"]
        return sum(FINAL in result.content for each in results for result in each.content)

    return run_parent


_SHARED = _create_scripted_client(1)


def waiting(number: int):
    messages = [
        UserMessage(content=text, source="user")
        if role == "user"
        else AssistantMessage(content=text, source="agent")
        for role, text in history(number)
    ]
    return _create_agent(
        _SHARED, [add], 5, model_context=UnboundedChatCompletionContext(initial_messages=messages)
    )


_CLIENTS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    if base not in _CLIENTS:
        _CLIENTS[base] = OpenAIChatCompletionClient(
            model="mock", base_url=f"{base}/v1", api_key="bench", model_info=_INFO
        )
    agent = _create_agent(_CLIENTS[base], [add], rounds, model_client_stream=stream)

    async def run_agent():
        if not stream:
            return (await agent.run(task=f"ROUNDS={rounds}")).messages[-1].content
        last = None
        async for event in agent.run_stream(task=f"ROUNDS={rounds}"):
            last = event
        return last.messages[-1].content

    return run_agent


if __name__ == "__main__":
    answer(sys.modules[__name__])
