"""The StructuredOutput tool, by which the lead gives its answer in the requested schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.text.json_schema import find_schema_violations
from shoal.tools.builtin_tool import load_tool_description

STRUCTURED_OUTPUT = "StructuredOutput"
_VALUE_KEY = "value"


class StructuredOutputTool:
    """Holds the last valid answer; each turn starts without one."""

    is_read_only = True
    is_concurrent = False
    deadline: float | None = None

    def __init__(self, answer_schema: Mapping[str, Any]) -> None:
        self._answer_schema = answer_schema
        # Arguments must be an object, whatever the answer's type is.
        self._is_wrapped = answer_schema.get("type") != "object"
        input_schema = answer_schema
        if self._is_wrapped:
            input_schema = {
                "type": "object",
                "properties": {_VALUE_KEY: answer_schema},
                "required": [_VALUE_KEY],
            }
            for key in ("$defs", "definitions"):
                if key in answer_schema:
                    input_schema[key] = answer_schema[key]
        self.schema = ToolSchema(
            name=STRUCTURED_OUTPUT,
            description=load_tool_description(STRUCTURED_OUTPUT),
            input_schema=input_schema,
        )
        self.has_answer = False
        self.answer: Any = None

    def forget_answer(self) -> None:
        self.has_answer, self.answer = False, None

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if self._is_wrapped and _VALUE_KEY not in arguments:
            return create_tool_error_output(
                f'The answer goes under "{_VALUE_KEY}". Call {STRUCTURED_OUTPUT} again.'
            )
        answer = arguments[_VALUE_KEY] if self._is_wrapped else dict(arguments)
        if violations := find_schema_violations(answer, self._answer_schema):
            listing = "\n".join(f"- {each}" for each in violations)
            return create_tool_error_output(
                f"The answer does not fit its form:\n{listing}\nCall {STRUCTURED_OUTPUT} again."
            )
        self.has_answer, self.answer = True, answer
        return ToolOutput(content="The answer fits its form and is taken. End your turn now.")
