"""OpenAI's Agents SDK: https://openai.github.io/openai-agents-python. Tracing is off."""

import sys

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from questions import CHILD, FINAL, add_up, answer, arguments, history

PACKAGES = ("openai-agents", "openai")
set_tracing_disabled(True)


@function_tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return add_up(a, b)


def _make_text(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


def _make_call(number: int, name: str, given: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"f{number}", call_id=f"c{number}", type="function_call", name=name, arguments=given
    )


def _make_reply(*output) -> ModelResponse:
    return ModelResponse(output=list(output), usage=Usage(), response_id=None)


class ScriptedAgentsModel(Model):
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    async def get_response(self, system_instructions, input, *_, **__):  # noqa: A002 - its name
        done = 0 if isinstance(input, str) else (len(input) - 1) // 2
        return _make_reply(
            _make_call(done, "add", arguments(done)) if done < self._rounds else _make_text(FINAL)
        )

    def stream_response(self, *_, **__):
        raise NotImplementedError


class DelegatingAgentsModel(ScriptedAgentsModel):
    def __init__(self, agents: int) -> None:
        self._agents = agents
        self.seen = 0

    async def get_response(self, system_instructions, input, *_, **__):  # noqa: A002 - its name
        if isinstance(input, str) or len(input) == 1:
            return _make_reply(
                *(_make_call(n, "delegate", f'{{"input": "{CHILD}"}}') for n in range(self._agents))
            )
        results = [each for each in input if each.get("type") == "function_call_output"]
        self.seen = sum(FINAL in str(each["output"]) for each in results)
        return _make_reply(_make_text(FINAL))


def run(rounds: int):
    agent = Agent(name="agent", instructions="You add.", tools=[add], model=ScriptedAgentsModel(rounds))

    async def run_agent():
        return (await Runner.run(agent, "go", max_turns=rounds + 5)).final_output

    return run_agent


def crowd(agents: int, rounds: int):
    child = Agent(name="child", instructions="You add.", tools=[add], model=ScriptedAgentsModel(rounds))
    model = DelegatingAgentsModel(agents)
    delegate = child.as_tool("delegate", "Delegate a task.", max_turns=rounds + 3)
    parent = Agent(name="parent", instructions="You delegate.", tools=[delegate], model=model)

    async def run_parent():
        await Runner.run(parent, "go")
        return model.seen

    return run_parent


_SHARED = ScriptedAgentsModel(1)


def waiting(number: int):
    agent = Agent(name=f"a{number}", instructions=f"You are agent {number}.", tools=[add], model=_SHARED)
    return agent, [{"role": role, "content": text} for role, text in history(number)]


_CLIENTS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from agents import OpenAIChatCompletionsModel
    from openai import AsyncOpenAI

    if base not in _CLIENTS:
        _CLIENTS[base] = AsyncOpenAI(base_url=f"{base}/v1", api_key="bench")
    model = OpenAIChatCompletionsModel("mock", openai_client=_CLIENTS[base])
    agent = Agent(name="agent", instructions="You add.", tools=[add], model=model)

    async def run_agent():
        if not stream:
            return (await Runner.run(agent, f"ROUNDS={rounds}", max_turns=rounds + 5)).final_output
        result = Runner.run_streamed(agent, f"ROUNDS={rounds}", max_turns=rounds + 5)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return run_agent


if __name__ == "__main__":
    answer(sys.modules[__name__])
