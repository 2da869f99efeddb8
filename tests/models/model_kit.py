"""What the tests of models share: a model at a mock server, and an ear that remembers."""

from __future__ import annotations

from typing import Any

from shoal.core.clock import Clock, SystemClock
from shoal.core.messages import Message, user
from shoal.core.ports import Model
from shoal.core.requests import Delta, Request, ToolSchema
from shoal.models.catalogue import card_of
from shoal.models.http import Deadlines
from shoal.models.providers import Access, make_model

READ = ToolSchema(
    name="Read",
    description="Read a file.",
    input_schema={
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
GREP = ToolSchema(
    name="Grep",
    description="Search files.",
    input_schema={"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
)


def anthropic_at(url: str, *, model: str = "claude-sonnet-4-5", **options: Any) -> Model:
    return _made("anthropic", model, url, **options)


def openai_at(url: str, *, model: str = "gpt-5.5", **options: Any) -> Model:
    return _made("openai", model, url, **options)


def _made(
    provider: str,
    model: str,
    url: str,
    *,
    clock: Clock | None = None,
    deadlines: Deadlines | None = None,
    card: Any = None,
    api_key: str | None = "sk-test",
    **access: Any,
) -> Model:
    reached = Access(base_url=url, api_key=api_key, deadlines=deadlines, **access)
    return make_model(provider, card or card_of(provider, model), reached, clock=clock or SystemClock())


def asking(*messages: Message | str, **fields: Any) -> Request:
    spoken = [user(message) if isinstance(message, str) else message for message in messages]
    return Request(system=fields.pop("system", "Be brief."), messages=spoken, **fields)


class Ear:
    """Hears, and remembers."""

    def __init__(self) -> None:
        self.heard: list[Delta] = []

    async def __call__(self, delta: Delta) -> None:
        self.heard.append(delta)

    def of(self, kind: type) -> list[Any]:
        return [delta for delta in self.heard if isinstance(delta, kind)]

    def text(self, kind: type) -> str:
        return "".join(delta.text for delta in self.of(kind))
