"""A lead that starts a given number of background agents, for tests that kill and resume it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import shoal
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.models.scripted_model import ReplyLike

AT_ONCE = 10


def choose_reply(request: ModelRequest) -> ReplyLike:
    words = request.messages[0].text
    last = request.messages[-1]
    if words.startswith("child"):
        done = any(message.role == "assistant" for message in request.messages)
        return "a report" if done else ToolUseBlock(id=_next_call_id(request), name="ListAgents", input={})
    if last.text.endswith("start more"):
        calls = {"description": "one of many", "prompt": "child", "run_in_background": True}
        return [
            ToolUseBlock(id=f"{_next_call_id(request)}-{n}", name="Agent", input=calls)
            for n in range(AT_ONCE)
        ]
    return "heard"


_count = 0


def _next_call_id(request: ModelRequest) -> str:
    global _count  # noqa: PLW0603 - a number for each call of this process
    _count += 1
    return f"call-{_count}-{len(request.messages)}"


async def run_lead(project: Path, session: str, agent_count: int) -> None:
    known = any((Path(os.environ["SHOAL_HOME"]) / "projects").glob(f"*/{session}.jsonl"))
    options = {"resume": session} if known else {"session_id": session}
    async with shoal.open(
        cwd=project, model=shoal.ScriptedModel(choose_reply), skip_permissions=True, **options
    ) as lead:
        turn = await lead.next_turn()
        while turn is not None or len(lead.supervisor.list_agents()) < agent_count:
            sys.stdout.write("turn\n")
            sys.stdout.flush()
            async for _ in turn or lead.run("start more"):
                pass
            turn = await lead.next_turn()


if __name__ == "__main__":
    asyncio.run(run_lead(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
