"""Scripts for a fake model, in JSON or TOML: steps with match conditions and answers.

A script is a list of steps, or a mapping with `steps` and options:

    steps        in the order in which they are tried
    pace         seconds per word; default 0
    price        {"input": 3.0, "output": 15.0}, in dollars per million tokens; default 0

Each request is answered by the first matching step that is not used up. A step is used once, or any number of
times with `repeat`; a step without conditions always matches, so a plain list is answered in order. Used
steps are tracked per process: a process that resumes the conversation starts with all of them. All fields of
a step are optional:

    match        text that occurs in the input since the last answer: user texts and tool results
    pattern      the same as a regular expression; `{{name}}` in texts and call inputs is replaced with the
                 match of the group with that name
    system       text that occurs in the system prompt
    at           number of answers that the conversation already holds
    repeat       true: the step is never used up
    thinking     thinking of the model, before the text
    text         text of the model, before the tool calls
    tools        tool calls: [{"name": "Read", "input": {"file_path": "a.py"}, "id": "optional"}]
    usage        {"input_tokens": 10, …}; estimated by default
    stop_reason  derived from the content by default
    delay        seconds before the answer begins
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from shoal.core.budgets.usage import TokenPrice, Usage
from shoal.core.conversation.messages import ContentBlock, TextBlock, ThinkingBlock, ToolUseBlock
from shoal.core.conversation.model_requests import StopReason
from shoal.core.errors import SettingsError

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


class ScriptedToolCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    input: dict[str, Any] = {}
    id: str = ""


class ModelScriptStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    match: str = ""
    pattern: str = ""
    system: str = ""
    at: int | None = None
    repeat: bool = False
    thinking: str = ""
    text: str = ""
    tools: tuple[ScriptedToolCall, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    delay: float = 0.0

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        blocks: list[ContentBlock] = []
        if self.thinking:
            blocks.append(ThinkingBlock(thinking=self.thinking, signature="scripted"))
        if self.text:
            blocks.append(TextBlock(text=self.text))
        blocks += [ToolUseBlock(id=call.id, name=call.name, input=call.input) for call in self.tools]
        return tuple(blocks)

    def matches(self, context: ModelScriptMatchContext) -> bool:
        return (
            (self.at is None or self.at == context.answer_count())
            and (not self.system or self.system in context.system_prompt())
            and (not self.match or self.match in context.latest_input())
            and (not self.pattern or re.search(self.pattern, context.latest_input()) is not None)
        )

    def substitute_pattern_groups(self, context: ModelScriptMatchContext) -> Self:
        """Return the step with the named groups of its pattern substituted."""
        found = re.search(self.pattern, context.latest_input()) if self.pattern else None
        groups = {} if found is None else found.groupdict("")
        if not groups:
            return self
        tools = [
            replace(
                call,
                input={key: _substitute_pattern_groups(value, groups) for key, value in call.input.items()},
            )
            for call in self.tools
        ]
        text, thinking = (
            _substitute_pattern_groups(self.text, groups),
            _substitute_pattern_groups(self.thinking, groups),
        )
        return replace(self, text=text, thinking=thinking, tools=tuple(tools))


class ModelScriptMatchContext(Struct, frozen=True, kw_only=True):
    """Inputs for matching a step, computed on demand."""

    latest_input: Callable[[], str]
    """The user texts and tool results since the last answer."""
    system_prompt: Callable[[], str]
    answer_count: Callable[[], int]


StepT = TypeVar("StepT", bound=ModelScriptStep)


class RemainingModelScriptSteps(Generic[StepT]):
    """Steps of a script that are not used up."""

    def __init__(self, steps: Iterable[StepT]) -> None:
        self._remaining = list(steps)

    def take_matching_step(self, context: ModelScriptMatchContext) -> StepT | None:
        for index, step in enumerate(self._remaining):
            if step.matches(context):
                if not step.repeat:
                    del self._remaining[index]
                return step.substitute_pattern_groups(context)
        return None


class ModelScriptOptions(Struct, frozen=True, kw_only=True):
    """Pace and price of a script."""

    pace: float = 0.0
    price: TokenPrice = TokenPrice(input=0.0, output=0.0)


def read_model_script(path: Path, kind: type[StepT]) -> tuple[StepT, ...]:
    """Read the steps of a script file; raise `SettingsError` with the mistake."""
    return read_model_script_with_options(path, kind)[0]


def read_model_script_with_options(
    path: Path, kind: type[StepT]
) -> tuple[tuple[StepT, ...], ModelScriptOptions]:
    """Read the steps and the options of a script file; raise `SettingsError` with the mistake."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"Cannot read the script {path}: {error.strerror}.", path=path) from error
    try:
        return _parse_model_script(content, kind, is_toml=path.suffix == ".toml")
    except (ValueError, re.error, OverflowError, RecursionError) as error:
        raise SettingsError(f"The script {path} is not valid: {error}.", path=path) from error


@lru_cache(maxsize=1)
def _parse_model_script(
    content: bytes, kind: type[StepT], *, is_toml: bool
) -> tuple[tuple[StepT, ...], ModelScriptOptions]:
    """Parse a script, once for all sessions of a process that use it."""
    raw = (msgspec.toml.decode if is_toml else msgspec.json.decode)(content)
    steps = raw.get("steps") if isinstance(raw, Mapping) else raw
    script = tuple(msgspec.convert(step, kind) for step in _require_step_list(steps))
    for step in script:
        re.compile(step.pattern)
    return script, msgspec.convert(raw if isinstance(raw, Mapping) else {}, ModelScriptOptions)


def _require_step_list(steps: object) -> list[object]:
    if not isinstance(steps, list):
        raise ValueError("it is neither a list of steps nor a mapping with `steps`")  # noqa: TRY004
    return steps


def _substitute_pattern_groups(value: Any, groups: Mapping[str, str]) -> Any:
    match value:
        case str():
            return _PLACEHOLDER.sub(lambda name: groups.get(name[1], name[0]), value)
        case dict():
            return {key: _substitute_pattern_groups(each, groups) for key, each in value.items()}
        case list():
            return [_substitute_pattern_groups(each, groups) for each in value]
        case _:
            return value
