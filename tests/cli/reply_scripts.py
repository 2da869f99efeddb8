"""Scripted replies of the provider for runs that start agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.testing.mock_replies import ReplyLike
from shoal.testing.scripted_server import MockServerStep, build_script_responder
from shoal.wire.model_script_codec import ScriptedToolCall

YES = ("--dangerously-skip-permissions",)


def script_replies(*steps: dict[str, Any]) -> Callable[[Any], ReplyLike]:
    return build_script_responder(
        [
            MockServerStep(
                **step | {"tools": tuple(ScriptedToolCall(**call) for call in step.get("tools", ()))}
            )
            for step in steps
        ]
    )


def make_agent_call(
    job: str, *, background: bool = False, kind: str = "general-purpose", **more: Any
) -> dict[str, Any]:
    given = {"description": f"do {job}", "prompt": f"job {job}", **more}
    return {"name": "Agent", "input": given | ({"run_in_background": True} if background else {})}


def make_bash_call(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "Bash", "input": {"command": command, **more}}
