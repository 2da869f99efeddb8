"""smolagents: https://huggingface.co/docs/smolagents. It has no asynchronous loop: calls run in threads.

A managed agent holds its state, so the tool that delegates creates an agent for each task.
"""

import sys

from questions import CHILD, FINAL, add_up, answer, history
from smolagents import LogLevel, Model, ToolCallingAgent, tool
from smolagents.memory import ActionStep, TaskStep
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)
from smolagents.monitoring import Timing, TokenUsage

PACKAGES = ("smolagents", "openai")


@tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return add_up(a, b)


def _make_calls(*calls: tuple[str, dict]) -> ChatMessage:
    functions = [ChatMessageToolCallFunction(name=name, arguments=given) for name, given in calls]
    return ChatMessage(
        role=MessageRole.ASSISTANT,
        content=None,
        token_usage=TokenUsage(100, 10),
        tool_calls=[
            ChatMessageToolCall(id=f"c{number}", type="function", function=function)
            for number, function in enumerate(functions)
        ],
    )


class ScriptedSmolModel(Model):
    def __init__(self, replies: list[ChatMessage]) -> None:
        super().__init__(model_id="scripted")
        self._replies = iter([*replies, _make_calls(("final_answer", {"answer": FINAL}))])

    def generate(self, *_, **__) -> ChatMessage:
        return next(self._replies)


def _create_scripted_model(rounds: int) -> ScriptedSmolModel:
    return ScriptedSmolModel([_make_calls(("add", {"a": done, "b": 1})) for done in range(rounds)])


def _create_agent(model, tools, rounds: int, **given) -> ToolCallingAgent:
    return ToolCallingAgent(
        tools=tools, model=model, max_steps=rounds + 5, verbosity_level=LogLevel.OFF, **given
    )


def run(rounds: int):
    agent = _create_agent(_create_scripted_model(rounds), [add], rounds)
    return lambda: agent.run("go")


def crowd(agents: int, rounds: int):
    @tool
    def delegate(task: str) -> str:
        """Delegate a task.

        Args:
            task: The task.
        """
        return _create_agent(_create_scripted_model(rounds), [add], rounds).run(task)

    parent = _create_agent(
        ScriptedSmolModel([_make_calls(*[("delegate", {"task": CHILD})] * agents)]), [delegate], 4
    )

    def run_parent():
        parent.run("go")
        return str(parent.memory.steps[1].observations).count(FINAL)

    return run_parent


_SHARED = ScriptedSmolModel([])


def waiting(number: int):
    agent = _create_agent(_SHARED, [add], 5)
    for k, (role, text) in enumerate(history(number)):
        timing = Timing(start_time=0.0, end_time=1.0)
        step = ActionStep(step_number=k, timing=timing, model_output=text)
        agent.memory.steps.append(TaskStep(task=text) if role == "user" else step)
    return agent


_MODELS: dict = {}


def over_http(base: str, rounds: int, stream: bool):
    from smolagents import OpenAIServerModel

    if base not in _MODELS:
        _MODELS[base] = OpenAIServerModel(model_id="mock", api_base=f"{base}/v1", api_key="bench")
    agent = _create_agent(_MODELS[base], [add], rounds, stream_outputs=stream)
    return lambda: agent.run(f"ROUNDS={rounds}")


if __name__ == "__main__":
    answer(sys.modules[__name__])
