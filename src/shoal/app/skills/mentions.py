"""Mentions in a person's message.

`@path` attaches a file or a listing, `@server:uri` a resource, and `@agent-name` requires an agent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.hook_points import emit_note
from shoal.agent.tool_calls import run_unrecorded_tool_call
from shoal.app.definitions.agent_catalog import AgentCatalog
from shoal.app.model_notices import format_session_notice
from shoal.core.conversation.messages import ContentBlock, ImageBlock, Message, TextBlock, ToolUseBlock
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import WorkspaceError
from shoal.core.text.control_tags import escape_control_tags
from shoal.core.text.filenames import escape_filename
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.core.text.name_suggestions import find_similar_names
from shoal.core.text.text_format import to_one_line
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
_PUNCTUATION = ".,;:!?)]"


class _FileMention(Struct, frozen=True, kw_only=True):
    given: str
    path: Path
    lines: tuple[int, int] | None = None
    is_requested: bool = False
    """True if the person named a path outside the project; a link in the project can lead anywhere."""


class _ResourceMention(Struct, frozen=True, kw_only=True):
    given: str
    server: str
    uri: str


class ResourceServers(Protocol):
    """MCP servers whose resources can be mentioned."""

    def split_resource_mention(self, mention: str) -> tuple[str, str] | None:
        """Return the server and the URI in `server:uri`; None if no server has this name."""
        ...

    async def open_resource(self, server: str, uri: str) -> tuple[str, Tool | None, str]:
        """Return the URI without punctuation after it, the tool that reads it, and the reason if none can."""
        ...


class MentionExpander:
    """Reads what a person mentions, with the permissions of the agent that gets the message."""

    def __init__(self, definitions: AgentCatalog, servers: ResourceServers) -> None:
        self._definitions = definitions
        self._servers = servers

    async def read_mentions(self, agent: AgentRunner, message: Message) -> Message | None:
        """Return a message with the files, resources and agents mentioned; None if there are none."""
        if "@" not in message.text or message.text.startswith(_TYPED_COMMAND):
            return None
        texts: list[str] = []
        images: list[ImageBlock] = []
        for mention in list(dict.fromkeys(_iter_mentions(message.text)))[:_MAX_MENTIONS]:
            if (kind := self._find_mentioned_agent(mention, agent)) is not None:
                texts.append(format_session_notice("mentioned_agent", name=kind))
                continue
            if (resource := self._servers.split_resource_mention(mention)) is not None:
                found: _ResourceMention | _FileMention | None = _ResourceMention(
                    given=mention, server=resource[0], uri=resource[1]
                )
            else:
                found = _find_file(mention, agent)
            if found is None:
                await self._warn_about_unknown_agent(mention, agent)
                continue
            output = await (
                self._read_resource(found, agent)
                if isinstance(found, _ResourceMention)
                else self._read_file(found, agent)
            )
            texts.append(_format_attachment(found, output))
            if output.is_error:
                await emit_note(agent, f"@{found.given} was not attached: {to_one_line(output.text)[:500]}")
            if not isinstance(output.content, str):
                images += (block for block in output.content if isinstance(block, ImageBlock))
        blocks: tuple[ContentBlock, ...] = (
            *(TextBlock(text=format_system_reminder(text)) for text in texts),
            *images,
        )
        return Message(role="user", content=blocks) if blocks else None

    def _find_mentioned_agent(self, mention: str, agent: AgentRunner) -> str | None:
        name = _get_agent_name(mention)
        if name is None or "Agent" not in agent.tools:
            return None
        find_name = self._definitions.resolve_agent_name
        return find_name(name) or find_name(name.rstrip(_PUNCTUATION))

    async def _warn_about_unknown_agent(self, mention: str, agent: AgentRunner) -> None:
        if (name := _get_agent_name(mention)) is None:
            return
        name = escape_filename(name.rstrip(_PUNCTUATION))
        if "Agent" not in agent.tools:
            reason = "this agent has no tool to start other agents"
            await emit_note(agent, f"@{escape_filename(mention)} has no effect: {reason}.")
            return
        similar = find_similar_names(name, [each.name for each in self._definitions.all()])
        advice = f"Did you mean @agent-{similar[0]}?" if similar else "List the agents: shoal agents ls"
        await emit_note(
            agent, f"There is no agent {name}, so @{escape_filename(mention)} has no effect. {advice}"
        )

    async def _read_file(self, mention: _FileMention, agent: AgentRunner) -> ToolOutput:
        if mention.path.is_dir():
            output = await list_mentioned_directory(agent, mention.path, is_requested=mention.is_requested)
        else:
            arguments: dict[str, object] = {"file_path": str(mention.path)}
            if mention.lines is not None:
                first, last = mention.lines
                arguments |= {"offset": first, "limit": max(1, last - first + 1)}
            read = agent.environment.session_tools["Read"]
            output = await _run_tool(agent, read, arguments, is_requested=mention.is_requested)
        if (instructions := agent.context.path_instructions) is not None and not output.is_error:
            instructions.add_used_file(str(mention.path))
        return output

    async def _read_resource(self, mention: _ResourceMention, agent: AgentRunner) -> ToolOutput:
        uri, used, problem = await self._servers.open_resource(mention.server, mention.uri)
        if used is None:
            return create_tool_error_output(problem)
        arguments: dict[str, object] = {"server": mention.server, "uri": uri}
        return await _run_tool(agent, used, arguments, is_requested=True)


def _get_agent_name(mention: str) -> str | None:
    """Return the agent that a mention names, whether it exists or not; None if it names none."""
    if mention.endswith(_AGENT_SUFFIX):
        return mention.removesuffix(_AGENT_SUFFIX)
    return mention.removeprefix(_AGENT_PREFIX) if mention.startswith(_AGENT_PREFIX) else None


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


async def list_mentioned_directory(
    agent: AgentRunner, path: Path, *, is_requested: bool = False
) -> ToolOutput:
    return await _run_tool(agent, list_directory, {"path": str(path)}, is_requested=is_requested)


def _iter_mentions(text: str) -> Iterator[str]:
    for match in _MENTION.finditer(text):
        yield match[1] or match[2]


def _find_file(mention: str, agent: AgentRunner) -> _FileMention | None:
    """Return the file that a mention names, without the punctuation that follows it."""
    workspace = agent.environment.workspace
    for given in dict.fromkeys((mention, mention.rstrip(f"{_PUNCTUATION}}}"))):
        lines = _LINES.search(given)
        candidates = [(given, None)] if lines is None else [(given, None), (given[: lines.start()], lines)]
        for name, range_ in candidates:
            try:
                expanded = workspace.user.expand_home(name)
                path = workspace.resolve_path(expanded)
                exists = path.exists()
            except (OSError, ValueError, WorkspaceError):
                continue
            if exists:
                numbers = None if range_ is None else (int(range_[1]), int(range_[2] or range_[1]))
                typed = os.path.normpath(workspace.cwd / expanded)
                is_inside = f"{typed}/".startswith(f"{str(workspace.root).rstrip('/')}/")
                return _FileMention(given=given, path=path, lines=numbers, is_requested=not is_inside)
    return None


async def _run_tool(
    agent: AgentRunner, used: Tool, arguments: dict[str, object], *, is_requested: bool
) -> ToolOutput:
    call = ToolUseBlock(id=f"typed-{agent.ids.new_short_id()}", name=used.schema.name, input=arguments)
    return await run_unrecorded_tool_call(agent, call, used, is_requested=is_requested)


def _format_attachment(mention: _FileMention | _ResourceMention, output: ToolOutput) -> str:
    source = (
        str(mention.path)
        if isinstance(mention, _FileMention)
        else f"the resource {mention.uri} of the MCP server {mention.server}"
    )
    content = output.text
    if len(content) > _MAX_CHARS:
        content = f"{content[:_MAX_CHARS]}\n[… {len(content) - _MAX_CHARS:,} more characters are left out]"
    return (
        format_session_notice(
            "mention_failed" if output.is_error else "mention",
            given=escape_filename(mention.given),
            path=escape_filename(source),
        )
        + f"\n{escape_control_tags(content)}"
    )
