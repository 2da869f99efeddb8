"""A model of your own."""

from agents import Agent, Model, ModelResponse, Runner, Usage
from openai.types.responses import ResponseOutputMessage, ResponseOutputText


class EchoModel(Model):
    async def get_response(self, system_instructions, input, *args, **kwargs):
        text = f"You said: {input if isinstance(input, str) else input[-1]['content']}"
        content = ResponseOutputText(text=text, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="1", content=[content], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    async def stream_response(self, *args, **kwargs):
        raise NotImplementedError
        yield


agent = Agent(name="assistant", model=EchoModel())
print(Runner.run_sync(agent, "Hello").final_output)
