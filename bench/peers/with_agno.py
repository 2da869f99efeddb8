"""agno: https://docs.agno.com. Telemetry is off."""

import sys
from dataclasses import dataclass

from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from questions import CHILD, FINAL, add_up, answer, arguments, history

PACKAGES = ("agno", "openai")


async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


def _make_call(number: int, name: str, given: str) -> dict:
    return {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": given}}


@dataclass
class ScriptedAgnoModel(Model):
    id: str = "scripted"
    rounds: int = 0
    agents: int = 0
    seen: int = 0

    async def ainvoke(self, messages, *_, **__):
        if self.agents:
            return self._reply_as_parent(messages)
        done = (len(messages) - 2) // 2  # without the system's and the user's
        if done < self.rounds:
            return ModelResponse(role="assistant", tool_calls=[_make_call(done, "add", arguments(done))])
        return ModelResponse(role="assistant", content=FINAL)

    def _reply_as_parent(self, messages):
        results = [message for message in messages if message.role == "tool"]
        if not results:
            calls = [
                _make_call(number, "delegate", f'{{"task": "{CHILD}"}}') for number in range(self.agents)
            ]
            return ModelResponse(role="assistant", tool_calls=calls)
        self.seen = sum(FINAL in str(message.content) for message in results)
        return ModelResponse(role="assistant", content=FINAL)

    def invoke(self, *_, **__):
        raise NotImplementedError

    invoke_stream = ainvoke_stream = invoke

    def _parse_provider_response(self, response, **_):
        return response

    _parse_provider_response_delta = _parse_provider_response


def _create_agent(model, tools) -> Agent:
    return Agent(model=model, tools=tools, system_message="You add.", telemetry=False)


def run(rounds: int):
    agent = _create_agent(ScriptedAgnoModel(rounds=rounds), [add])

    async def run_agent():
        return (await agent.arun("go")).content

    return run_agent


def crowd(agents: int, rounds: int):
    child = _create_agent(ScriptedAgnoModel(rounds=rounds), [add])

    async def delegate(task: str) -> str:
        """Delegate a task."""
        return (await child.arun(task)).content

    model = ScriptedAgnoModel(agents=agents)
    parent = _create_agent(model, [delegate])

    async def run_parent():
        await parent.arun("go")
        return model.seen

    return run_parent


_SHARED = ScriptedAgnoModel(rounds=1)


def waiting(number: int):
    messages = [Message(role=role, content=text) for role, text in history(number)]
    return _create_agent(_SHARED, [add]), messages


_MODELS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from agno.models.openai import OpenAIChat

    if base not in _MODELS:
        _MODELS[base] = OpenAIChat(id="mock", base_url=f"{base}/v1", api_key="bench")
    agent = _create_agent(_MODELS[base], [add])

    async def run_agent():
        if not stream:
            return (await agent.arun(f"ROUNDS={rounds}")).content
        text = ""
        async for event in agent.arun(f"ROUNDS={rounds}", stream=True):
            text += str(getattr(event, "content", None) or "")
        return text

    return run_agent


if __name__ == "__main__":
    answer(sys.modules[__name__])
