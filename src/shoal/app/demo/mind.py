"""The demo's model: its words are written down, its pace is that of somebody to be followed."""

from __future__ import annotations

import asyncio
from importlib.resources import as_file, files

from shoal.core.clock import SystemClock
from shoal.core.usage import ModelCard, Price
from shoal.models.scripted import ScriptedModel

PACE = 0.07
"""Seconds per word."""
CARD = ModelCard(
    id="scripted", provider="scripted", price=Price(input=3.0, output=15.0), window=200_000, max_output=8_192
)
"""With a price as hosted models have it, so that the demo shows what such a run would cost."""


class _NoWaiting(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def mind(*, fast: bool) -> ScriptedModel:
    with as_file(files("shoal.app.demo") / "script.toml") as script:
        if fast:
            return ScriptedModel.from_file(script, card=CARD, clock=_NoWaiting())
        return ScriptedModel.from_file(script, card=CARD, pace=PACE)
