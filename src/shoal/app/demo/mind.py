"""The demo's model: its words are written down, its pace is that of somebody to be followed."""

from __future__ import annotations

import asyncio
import shutil
import sysconfig
import tempfile
from importlib.resources import files
from pathlib import Path

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
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as script:
        script.write(_script())
        script.flush()
        if fast:
            return ScriptedModel.from_file(Path(script.name), card=CARD, clock=_NoWaiting())
        return ScriptedModel.from_file(Path(script.name), card=CARD, pace=PACE)


def _script() -> str:
    """Where searching is not installed, an agent does without it, and so does the script."""
    text = (files("shoal.app.demo") / "script.toml").read_text(encoding="utf-8")
    if shutil.which("rg") or shutil.which("rg", path=sysconfig.get_path("scripts")):
        return text
    return "\n".join(line for line in text.splitlines() if 'name = "Grep"' not in line)
