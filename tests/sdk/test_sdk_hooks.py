"""Hooks that are functions of the program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sdk_rig import PATIENCE, Rig


async def test_hooks_of_the_program_are_refused_and_not_passed_over(rig: Rig) -> None:
    async def judge(given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        return {}

    hooks = {"PreToolUse": [rig.sdk.HookMatcher(hooks=[judge])]}
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Exception, match="Hooks of a driving program"):
            await rig.client(None, hooks=hooks).connect()
