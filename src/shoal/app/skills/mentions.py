"""Mentions in a person's message: `@path` attaches a file or a listing, `@agent-name` requires an agent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.model_notices import format_session_notice
from shoal.core.conversation.messages import ContentBlock, ImageBlock, Message, TextBlock, ToolUseBlock
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput
from shoal.core.errors import WorkspaceError
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.filenames import escape_filename
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.tools.function_tool import tool
from shoal.wire.notification_text import format_system_reminder

_MAX_MENTIONS = 20
_MAX_CHARS = 50_000
"""Maximum characters of one attached file."""
_MAX_ENTRIES = 200
"""Maximum entries of one listing."""
_MENTION = compile_on_first_use(r"(?<![^\s(\[])@(?:\"([^\"\n]+)\"|([^\s\"'`<>@]+))")
_LINES = compile_on_first_use(r"#L?(\d{1,7})(?:-L?(\d{1,7}))?$")
_TYPED_COMMAND = "<command-name>"
"""Start of a slash command, whose arguments are never read as paths."""
_AGENT_PREFIX, _AGENT_SUFFIX = "agent-", " (agent)"


class _FileMention(Struct, frozen=True, kw_only=True):
    given: str
    path: Path
    lines: tuple[int, int] | None = None


class MentionExpander:
    """Reads what a person mentions, with the permissions of the agent that gets the message."""

    def __init__(self, find_agent_name: Callable[[str], str | None]) -> None:
        self._find_agent_name = find_agent_name

    async def read_mentions(self, agent: AgentRunner, message: Message) -> Message | None:
        """Return a message with the files, listings and agents mentioned; None if there are none."""
        if "@" not in message.text or message.text.startswith(_TYPED_COMMAND):
            return None
        texts: list[str] = []
        images: list[ImageBlock] = []
        for mention in list(dict.fromkeys(_iter_mentions(message.text)))[:_MAX_MENTIONS]:
            if (kind := self._find_mentioned_agent(mention, agent)) is not None:
                texts.append(format_session_notice("mentioned_agent", name=kind))
            elif (found := _find_file(mention, agent)) is not None:
                output = await self._read_file(found, agent)
                texts.append(_format_attachment(found, output))
                if (instructions := agent.context.path_instructions) is not None and not output.is_error:
                    instructions.add_used_file(str(found.path))
                if not isinstance(output.content, str):
                    images += (block for block in output.content if isinstance(block, ImageBlock))
        blocks: tuple[ContentBlock, ...] = (
            *(TextBlock(text=format_system_reminder(text)) for text in texts),
            *images,
        )
        return Message(role="user", content=blocks) if blocks else None

    def _find_mentioned_agent(self, mention: str, agent: AgentRunner) -> str | None:
        name = (
            mention.removesuffix(_AGENT_SUFFIX)
            if mention.endswith(_AGENT_SUFFIX)
            else mention.removeprefix(_AGENT_PREFIX)
        )
        if name == mention or "Agent" not in agent.tools:
            return None
        return self._find_agent_name(name) or self._find_agent_name(name.rstrip(".,;:!?)]"))

    async def _read_file(self, mention: _FileMention, agent: AgentRunner) -> ToolOutput:
        if mention.path.is_dir():
            return await list_mentioned_directory(agent, mention.path)
        arguments: dict[str, object] = {"file_path": str(mention.path)}
        if mention.lines is not None:
            first, last = mention.lines
            arguments |= {"offset": first, "limit": max(1, last - first + 1)}
        return await _run_tool(agent, agent.environment.session_tools["Read"], arguments)


# It has the name of Glob so that the rules about it apply.
@tool(name="Glob", description="Lists a directory.", reads_only=True)
async def list_directory(path: str, context: ToolContext) -> ToolOutput:
    is_unreadable = context.unreadable_filter(path)
    with os.scandir(path) as entries:
        names = sorted(
            escape_filename(entry.name) + ("/" if entry.is_dir() else "")
            for entry in entries
            if not is_unreadable(entry.path)
        )
    rest = [f"… and {len(names) - _MAX_ENTRIES} more"] if len(names) > _MAX_ENTRIES else []
    return ToolOutput(content="\n".join([*names[:_MAX_ENTRIES], *rest]) or "(empty)")


async def list_mentioned_directory(agent: AgentRunner, path: Path) -> ToolOutput:
    return await _run_tool(agent, list_directory, {"path": str(path)})


def _iter_mentions(text: str) -> Iterator[str]:
    for match in _MENTION.finditer(text):
        yield match[1] or match[2]


def _find_file(mention: str, agent: AgentRunner) -> _FileMention | None:
    """Return the file that a mention names, without the punctuation that follows it."""
    workspace = agent.environment.workspace
    for given in dict.fromkeys((mention, mention.rstrip(".,;:!?)]}"))):
        lines = _LINES.search(given)
        candidates = [(given, None)] if lines is None else [(given, None), (given[: lines.start()], lines)]
        for name, range_ in candidates:
            try:
                path = workspace.resolve_path(workspace.user.expand_home(name))
                exists = path.exists()
            except (OSError, ValueError, WorkspaceError):
                continue
            if exists:
                numbers = None if range_ is None else (int(range_[1]), int(range_[2] or range_[1]))
                return _FileMention(given=given, path=path, lines=numbers)
    return None


async def _run_tool(agent: AgentRunner, used: Tool, arguments: dict[str, object]) -> ToolOutput:
    call = ToolUseBlock(id=f"typed-{agent.ids.new_short_id()}", name=used.schema.name, input=arguments)
    return await run_unrecorded_tool_call(agent, call, used)


def _format_attachment(mention: _FileMention, output: ToolOutput) -> str:
    content = output.text
    if len(content) > _MAX_CHARS:
        content = f"{content[:_MAX_CHARS]}\n[… {len(content) - _MAX_CHARS:,} more characters are left out]"
    return (
        format_session_notice(
            "mention_failed" if output.is_error else "mention",
            given=escape_filename(mention.given),
            path=escape_filename(mention.path),
        )
        + f"\n{escape_control_tags(content)}"
    )
