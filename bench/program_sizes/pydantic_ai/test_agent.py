"""A test without a key."""

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def read(path: str) -> str:
    """Read a file."""
    with open(path) as file:
        return file.read()


def test_the_agent_reads_the_file_before_it_answers(tmp_path):
    (tmp_path / "poem.txt").write_text("Roses are red\nViolets are blue\n")
    replies = [ToolCallPart("read", {"path": str(tmp_path / "poem.txt")}), TextPart("It has 2 lines.")]
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[replies.pop(0)]))
    result = Agent(model, tools=[read]).run_sync("Count the lines of poem.txt")
    assert (result.output, result.usage().requests) == ("It has 2 lines.", 2)
