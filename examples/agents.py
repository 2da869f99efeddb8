"""A lead starts agents in the background; the program reads what each reports, and asks one for more.

Runs offline, in a temporary home: the models' replies are scripted, the agents, their files and their
transcripts are real. Try it: python examples/agents.py
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import shoal
from shoal.core.conversation.messages import ToolUseBlock
from shoal.core.conversation.model_requests import ModelRequest
from shoal.core.ids import IdGenerator

FILES = {"poem.txt": "Roses are red\nViolets are blue\n", "list.txt": "bread\nmilk\ncheese\n"}
ids = IdGenerator()


def call_tool(tool: str, /, **arguments: object) -> ToolUseBlock:
    return ToolUseBlock(id=ids.new_short_id(), name=tool, input=arguments)


def start_reader(file: str) -> ToolUseBlock:
    """Start an agent in the background, as a model does; messages reach it by its name."""
    job = {"description": f"Read {file}", "prompt": f"Count the lines of {file}"}
    return call_tool("Agent", name=Path(file).stem, run_in_background=True, **job)


def reply_as_model(request: ModelRequest) -> str | list[ToolUseBlock]:
    """Reply in place of a model: the lead sends a reader to each file, a reader reads it and reports."""
    first, last = request.messages[0].text, request.messages[-1].text
    if not first.startswith("Count"):
        return [start_reader(file) for file in FILES] if last == first else "The readers tell it themselves."
    file = first.split()[-1]
    lines = FILES[file].splitlines()
    if last == first:
        return [call_tool("Read", file_path=file)]
    return f"{file} begins with {lines[0]!r}." if last else f"{file} has {len(lines)} lines."


def print_event(event: shoal.events.Event) -> None:
    """Print events of any agent of the session, in and between turns."""
    match event:
        case shoal.events.AgentStarted(name=name, resumed=resumed):
            print(f"{name} {'goes on' if resumed else 'starts'}")
        case shoal.events.AgentEnded(completion=result):
            print(f"{result.name} {result.status}: {result.text} ({result.evidence.tool_calls} tool calls)")


async def run_turns(session: shoal.Session, prompt: str | None = None) -> None:
    """Run the turn for the prompt, and the turns that follow until no agent is working."""
    turn = session.run(prompt) if prompt else await session.next_turn()
    while turn is not None:
        async for _ in turn:
            pass
        turn = await session.next_turn()


async def main(project: Path) -> None:
    for file, content in FILES.items():
        (project / file).write_text(content)
    async with shoal.open(cwd=project, model=shoal.ScriptedModel(reply_as_model)) as session:
        session.subscribe(print_event)
        await run_turns(session, "How long are the files?")
        # The agent has ended, so this resumes it with its whole conversation.
        await session.send("list", "And how does it begin?")
        await run_turns(session)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.environ["SHOAL_HOME"] = f"{place}/home"
        (Path(place) / "project").mkdir()
        asyncio.run(main(Path(place) / "project"))
