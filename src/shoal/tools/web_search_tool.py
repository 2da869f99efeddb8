"""The WebSearch tool; the session chooses what answers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Protocol
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.tool_texts import format_tool_text, load_tool_text

WEB_SEARCH_TOOL = "WebSearch"
_SECONDS = 90.0


class WebSearchQuery(Struct, frozen=True, kw_only=True):
    text: str
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()

    @property
    def is_restricted(self) -> bool:
        return bool(self.allowed_domains or self.blocked_domains)

    def permits_url(self, url: str) -> bool:
        """Return True if the domains permit a result."""
        host = f".{urlsplit(url).hostname or ''}"
        if self.allowed_domains:
            return any(host.endswith(f".{domain}") for domain in self.allowed_domains)
        return not any(host.endswith(f".{domain}") for domain in self.blocked_domains)


class WebSearchBackend(Protocol):
    async def search(self, query: WebSearchQuery, context: ToolContext) -> ToolOutput: ...


def build_web_search_tool(backend: WebSearchBackend) -> Tool:
    @builtin_tool(name=WEB_SEARCH_TOOL, reads_only=True, deadline=_SECONDS)
    async def web_search(
        query: Annotated[str, Meta(min_length=2)],
        context: ToolContext,
        allowed_domains: Sequence[str] | None = None,
        blocked_domains: Sequence[str] | None = None,
    ) -> ToolOutput:
        if allowed_domains and blocked_domains:
            return create_tool_error_output(load_tool_text("WebSearch", "both"))
        asked = WebSearchQuery(
            text=query,
            allowed_domains=tuple(allowed_domains or ()),
            blocked_domains=tuple(blocked_domains or ()),
        )
        output = await backend.search(asked, context)
        if output.is_error:
            return output
        # The mark cannot be guessed, so a result cannot fake its own end.
        mark = context.ids.new_short_id()
        lines = (
            format_tool_text("WebSearch", "content", mark=mark),
            output.text or "(no results)",
            f"--- end of results {mark} ---",
        )
        return ToolOutput(content="\n".join(lines), data=output.data)

    return web_search
