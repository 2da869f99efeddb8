"""A test without a key. The library has a test model, but does not install it, so the test has its own."""

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedModel(Model):
    def __init__(self, replies):
        self.replies = replies

    async def get_response(self, *args, **kwargs):
        return ModelResponse(output=[self.replies.pop(0)], usage=Usage(), response_id=None)

    async def stream_response(self, *args, **kwargs):
        raise NotImplementedError
        yield


@function_tool
def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


def test_the_agent_reads_the_file_before_it_answers(tmp_path):
    (tmp_path / "poem.txt").write_text("Roses are red\nViolets are blue\n")
    arguments = '{"path": "%s"}' % (tmp_path / "poem.txt")
    call = ResponseFunctionToolCall(call_id="1", name="read", arguments=arguments, type="function_call")
    content = ResponseOutputText(text="It has 2 lines.", type="output_text", annotations=[])
    answer = ResponseOutputMessage(
        id="1", content=[content], role="assistant", status="completed", type="message"
    )
    agent = Agent(name="counter", tools=[read], model=ScriptedModel([call, answer]))
    result = Runner.run_sync(agent, "Count the lines of poem.txt")
    assert (result.final_output, len(result.raw_responses)) == ("It has 2 lines.", 2)
