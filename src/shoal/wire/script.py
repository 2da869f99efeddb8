"""Scripts that stand in for a model's mind, from JSON or TOML: steps, what each answers to and says.

A script is a list of steps, or a mapping with `steps`. For each request the first step that fits and is not
used up is said. A step is used once, or for ever with `repeat`; a step without conditions always fits, so a
plain list is said in its order. All of a step's fields are optional:

    match        text that occurs in the last user text or tool result
    pattern      the same as a regular expression
    system       text that occurs in the system prompt
    at           how many answers the conversation already holds
    repeat       true: the step is never used up
    thinking     what the model thinks, before
    text         what it says, before
    tools        the calls it makes: [{"name": "Read", "input": {"file_path": "a.py"}, "id": "optional"}]
    usage        {"input_tokens": 10, …}; estimated where it is left out
    stop_reason  derived from the content where it is left out
    delay        seconds before the answer begins
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from shoal.core.errors import SettingsError
from shoal.core.messages import ContentBlock, Text, Thinking, ToolUse
from shoal.core.requests import StopReason
from shoal.core.usage import Usage


class ScriptedCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    input: dict[str, Any] = {}
    id: str = ""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    match: str = ""
    pattern: str = ""
    system: str = ""
    at: int | None = None
    repeat: bool = False
    thinking: str = ""
    text: str = ""
    tools: tuple[ScriptedCall, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    delay: float = 0.0

    @property
    def content(self) -> tuple[ContentBlock, ...]:
        blocks: list[ContentBlock] = []
        if self.thinking:
            blocks.append(Thinking(thinking=self.thinking, signature="scripted"))
        if self.text:
            blocks.append(Text(text=self.text))
        blocks += [ToolUse(id=call.id, name=call.name, input=call.input) for call in self.tools]
        return tuple(blocks)

    def fits(self, asked: Asked) -> bool:
        return (
            (self.at is None or self.at == asked.answers())
            and (not self.system or self.system in asked.system())
            and (not self.match or self.match in asked.last())
            and (not self.pattern or re.search(self.pattern, asked.last()) is not None)
        )


class Asked(Struct, frozen=True, kw_only=True):
    """What a step may look at; worked out only when one does."""

    last: Callable[[], str]
    """The last user text or tool result."""
    system: Callable[[], str]
    answers: Callable[[], int]


StepT = TypeVar("StepT", bound=Step)


class Steps(Generic[StepT]):
    """The steps of a script that are not used up."""

    def __init__(self, steps: Iterable[StepT]) -> None:
        self._open = list(steps)

    def take(self, asked: Asked) -> StepT | None:
        for index, step in enumerate(self._open):
            if step.fits(asked):
                if not step.repeat:
                    del self._open[index]
                return step
        return None


def read_script(path: Path, kind: type[StepT]) -> tuple[StepT, ...]:
    """The steps of a script file; raises `SettingsError` that says what is wrong where."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"The script {path} cannot be read: {error.strerror}.", path=path) from error
    decode = msgspec.toml.decode if path.suffix == ".toml" else msgspec.json.decode
    try:
        raw = decode(content)
        steps = raw.get("steps") if isinstance(raw, Mapping) else raw
        script = tuple(msgspec.convert(step, kind) for step in _listed(steps))
        for step in script:
            re.compile(step.pattern)
    except (ValueError, re.error) as error:
        raise SettingsError(f"The script {path} is not usable: {error}.", path=path) from error
    return script


def _listed(steps: object) -> list[object]:
    if not isinstance(steps, list):
        raise ValueError("it is neither a list of steps nor a mapping with `steps`")  # noqa: TRY004
    return steps
