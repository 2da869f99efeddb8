"""A model that answers at once, and the tool it calls: only the code in between is measured."""

from __future__ import annotations

from shoal.core.budgets.usage import ModelCard, TokenPrice, Usage
from shoal.core.conversation.messages import Message, TextBlock, ToolUseBlock
from shoal.core.conversation.model_requests import (
    DeltaListener,
    ModelAttemptStartedDelta,
    ModelReply,
    ModelRequest,
    TextDelta,
    ToolInputProgressDelta,
)
from shoal.tools.function_tool import FunctionTool, tool

FINAL_TEXT = "all done"
CALL_TEXT = "I add one to the number."
_ATTEMPT_STARTED = ModelAttemptStartedDelta()
_TEXT_DELTA = TextDelta(CALL_TEXT)
_INPUT_DELTA = ToolInputProgressDelta("add", 16)
_USAGE = Usage(input_tokens=100, output_tokens=10)


class InstantModel:
    """Calls `add` in each round, then ends; each call comes with `call_text`, if any."""

    card = ModelCard(id="instant", provider="bench", price=TokenPrice(input=3.0, output=15.0))

    def __init__(self, rounds: int, call_text: str = CALL_TEXT) -> None:
        self._rounds = rounds
        self._call_text = call_text

    async def generate_reply(self, request: ModelRequest, on_delta: DeltaListener) -> ModelReply:
        rounds_done = len(request.messages) // 2
        await on_delta(_ATTEMPT_STARTED)
        if self._call_text:
            await on_delta(_TEXT_DELTA)
        if rounds_done >= self._rounds:
            message = Message(role="assistant", content=(TextBlock(text=FINAL_TEXT),))
            return ModelReply(message=message, usage=_USAGE, stop_reason="end_turn", model="instant", id="m")
        await on_delta(_INPUT_DELTA)
        call = ToolUseBlock(id=f"c{rounds_done}", name="add", input={"a": rounds_done, "b": 1})
        content = (TextBlock(text=self._call_text), call) if self._call_text else (call,)
        message = Message(role="assistant", content=content)
        return ModelReply(message=message, usage=_USAGE, stop_reason="tool_use", model="instant", id="m")

    async def aclose(self) -> None: ...


class AddTool:
    """Counts its calls, so that a bench can verify that the work was done."""

    def __init__(self) -> None:
        self.calls = 0
        self.tool: FunctionTool = tool(self.add)

    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.calls += 1
        return str(a + b)
