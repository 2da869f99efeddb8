"""LangChain's agents on LangGraph: https://docs.langchain.com. Tracing to LangSmith is off."""

import sys

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from questions import CHILD, FINAL, add_up, answer, history

PACKAGES = ("langgraph", "langchain", "langchain-core", "langchain-openai")


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


def _make_call(number: int, name: str, given: dict) -> dict:
    return {"name": name, "args": given, "id": f"c{number}", "type": "tool_call"}


def _make_result(text: str, calls: list[dict] | None = None) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=AIMessage(content=text, tool_calls=calls or []))])


class ScriptedChatModel(BaseChatModel):
    rounds: int = 0
    agents: int = 0
    seen: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_, **__):
        return self

    def _generate(self, *_, **__):
        raise NotImplementedError

    async def _agenerate(self, messages, *_, **__):
        if self.agents:
            return self._reply_as_parent(messages)
        done = (len(messages) - 1) // 2  # without the system's and the user's
        if done < self.rounds:
            return _make_result("", [_make_call(done, "add", {"a": done, "b": 1})])
        return _make_result(FINAL)

    def _reply_as_parent(self, messages):
        if not isinstance(messages[-1], ToolMessage):
            return _make_result(
                "", [_make_call(number, "delegate", {"task": CHILD}) for number in range(self.agents)]
            )
        self.seen = sum(isinstance(each, ToolMessage) and FINAL in str(each.content) for each in messages)
        return _make_result(FINAL)


async def _ask_agent(agent, prompt: str, rounds: int) -> str:
    asked = {"messages": [HumanMessage(prompt)]}
    return (await agent.ainvoke(asked, {"recursion_limit": 10 * rounds + 50}))["messages"][-1].content


def run(rounds: int):
    agent = create_agent(ScriptedChatModel(rounds=rounds), [add], system_prompt="You add.")
    return lambda: _ask_agent(agent, "go", rounds)


def crowd(agents: int, rounds: int):
    child = create_agent(ScriptedChatModel(rounds=rounds), [add], system_prompt="You add.")

    @tool
    async def delegate(task: str) -> str:
        """Delegate a task."""
        return await _ask_agent(child, task, rounds)

    model = ScriptedChatModel(agents=agents)
    parent = create_agent(model, [delegate], system_prompt="You delegate.")

    async def run_parent():
        await _ask_agent(parent, "go", 1)
        return model.seen

    return run_parent


_SHARED = ScriptedChatModel(rounds=1)


def waiting(number: int):
    messages = [HumanMessage(text) if role == "user" else AIMessage(text) for role, text in history(number)]
    return create_agent(_SHARED, [add], system_prompt=f"You are agent {number}."), messages


_MODELS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from langchain_openai import ChatOpenAI

    if (base, stream) not in _MODELS:
        _MODELS[base, stream] = ChatOpenAI(
            model="mock", base_url=f"{base}/v1", api_key="bench", streaming=stream, stream_usage=stream
        )
    agent = create_agent(_MODELS[base, stream], [add], system_prompt="You add.")

    async def run_agent():
        if not stream:
            return await _ask_agent(agent, f"ROUNDS={rounds}", rounds)
        asked, config = (
            {"messages": [HumanMessage(f"ROUNDS={rounds}")]},
            {"recursion_limit": 10 * rounds + 50},
        )
        text = ""
        async for chunk, _ in agent.astream(asked, config, stream_mode="messages"):
            text = text + str(chunk.content) if chunk.type == "AIMessageChunk" else ""
        return text

    return run_agent


if __name__ == "__main__":
    answer(sys.modules[__name__])
