"""A model of your own."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(f"You said: {messages[-1].parts[-1].content}")])


async def stream(messages: list[ModelMessage], info: AgentInfo):
    yield f"You said: {messages[-1].parts[-1].content}"


agent = Agent(FunctionModel(reply, stream_function=stream))
print(agent.run_sync("Hello").output)
