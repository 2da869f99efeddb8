"""The StructuredOutput tool, by which the lead gives its answer in the requested schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.core.json_schema import misfits
from shoal.core.requests import ToolSchema
from shoal.core.tools import Outcome, Site, failed

STRUCTURED_OUTPUT = "StructuredOutput"
_DESCRIPTION = (
    "Give your final answer, in the form this session asks for. Call it once, when the work is done; what "
    "does not fit the form is refused with the reasons, and can be given again."
)
_WHOLE = "value"


class StructuredOutput:
    """Holds the last valid answer; each turn starts without one."""

    reads_only = True
    side_by_side = False
    deadline: float | None = None

    def __init__(self, form: Mapping[str, Any]) -> None:
        self._form = form
        # Arguments must be an object, whatever the answer's type is.
        self._wrapped = form.get("type") != "object"
        given = form
        if self._wrapped:
            given = {"type": "object", "properties": {_WHOLE: form}, "required": [_WHOLE]}
            for key in ("$defs", "definitions"):
                if key in form:
                    given[key] = form[key]
        self.schema = ToolSchema(name=STRUCTURED_OUTPUT, description=_DESCRIPTION, input_schema=given)
        self.filled = False
        self.answer: Any = None

    def forget(self) -> None:
        self.filled, self.answer = False, None

    async def run(self, arguments: Mapping[str, Any], site: Site) -> Outcome:
        if self._wrapped and _WHOLE not in arguments:
            return failed(f'The answer goes under "{_WHOLE}". Call {STRUCTURED_OUTPUT} again.')
        answer = arguments[_WHOLE] if self._wrapped else dict(arguments)
        if wrong := misfits(answer, self._form):
            listed = "\n".join(f"- {each}" for each in wrong)
            return failed(f"The answer does not fit its form:\n{listed}\nCall {STRUCTURED_OUTPUT} again.")
        self.filled, self.answer = True, answer
        return Outcome(content="The answer fits its form and is taken. End your turn now.")
