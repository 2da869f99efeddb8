"""The StructuredOutput tool, by which the lead gives its answer in the requested schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.conversation.model_requests import ToolSchema
from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.output_type import OutputType
from shoal.core.text.json_schema import find_schema_violations
from shoal.tools.tool_texts import format_tool_text, load_tool_description

STRUCTURED_OUTPUT = "StructuredOutput"
_VALUE_KEY = "value"


class StructuredOutputTool:
    """Holds the last valid answer; each turn starts without one."""

    is_read_only = True
    is_concurrent = False
    deadline: float | None = None

    def __init__(self, answer_schema: Mapping[str, Any], output_type: OutputType[Any] | None = None) -> None:
        """`output_type` is the Python type that an answer must also convert to."""
        self._answer_schema = answer_schema
        self._output_type = output_type
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
            return create_tool_error_output(format_tool_text(STRUCTURED_OUTPUT, "no_value", key=_VALUE_KEY))
        answer = arguments[_VALUE_KEY] if self._is_wrapped else dict(arguments)
        violations = find_schema_violations(answer, self._answer_schema)
        if violations := violations or self._find_conversion_errors(answer):
            listing = "\n".join(f"- {each}" for each in violations)
            return create_tool_error_output(format_tool_text(STRUCTURED_OUTPUT, "invalid", problems=listing))
        self.has_answer, self.answer = True, answer
        return ToolOutput(content=format_tool_text(STRUCTURED_OUTPUT, "accepted"))

    def _find_conversion_errors(self, answer: Any) -> list[str]:
        """Return what the Python type rejects although the schema allows it, such as a validator's error."""
        if self._output_type is None:
            return []
        try:
            self._output_type.convert(answer)
        except Exception as error:  # noqa: BLE001 - validators of the program may raise anything
            return [str(error)]
        return []
