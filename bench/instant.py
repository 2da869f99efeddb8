"""A model that answers at once, and the tool it calls: only the code in between is measured."""

from __future__ import annotations

from shoal.core.messages import Message, Text, ToolUse
from shoal.core.requests import Hear, Reply, Request, Sent, TextDelta, ToolInputDelta
from shoal.core.usage import ModelCard, Price, Usage
from shoal.tools.define import FunctionTool, tool

FINAL = "all done"
SAYING = "I add one to the number."
_SENT = Sent()
_SAID = TextDelta(SAYING)
_CALLING = ToolInputDelta("add", 16)
_USAGE = Usage(input_tokens=100, output_tokens=10)


class InstantModel:
    """Calls `add` in each round, then ends; each call comes with `call_text`, if any."""

    card = ModelCard(id="instant", provider="bench", price=Price(input=3.0, output=15.0))

    def __init__(self, rounds: int, saying: str = SAYING) -> None:
        self._rounds = rounds
        self._saying = saying

    async def reply(self, request: Request, hear: Hear) -> Reply:
        done = len(request.messages) // 2
        await hear(_SENT)
        if self._saying:
            await hear(_SAID)
        if done >= self._rounds:
            message = Message(role="assistant", content=(Text(text=FINAL),))
            return Reply(message=message, usage=_USAGE, stop_reason="end_turn", model="instant", id="m")
        await hear(_CALLING)
        call = ToolUse(id=f"c{done}", name="add", input={"a": done, "b": 1})
        said = (Text(text=self._saying), call) if self._saying else (call,)
        message = Message(role="assistant", content=said)
        return Reply(message=message, usage=_USAGE, stop_reason="tool_use", model="instant", id="m")

    async def aclose(self) -> None: ...


class Adder:
    """Counts its calls, so that a bench can verify that the work was done."""

    def __init__(self) -> None:
        self.calls = 0
        self.tool: FunctionTool = tool(self.add)

    async def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.calls += 1
        return str(a + b)
