"""The WebFetch tool, which reads web pages and caches them for 15 minutes."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from pathlib import Path

from msgspec import Struct

from shoal.core.clock import Clock
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import ProcessError, StateFileError
from shoal.core.text.lazy_patterns import compile_on_first_use
from shoal.tools.builtin_tool import builtin_tool
from shoal.tools.page_fetcher import (
    MAX_BODY_BYTES,
    FetchedWebPage,
    UnfollowedCrossHostRedirect,
    WebPageFetchRefusedError,
    fetch_web_page,
)
from shoal.tools.python_subprocess import run_python_subprocess
from shoal.tools.tool_texts import format_tool_text, load_tool_text

MAX_PAGE_CHARACTERS = 50_000
"""Maximum number of characters of a page shown to the model."""
_HTML_TEXT_SCRIPT = Path(__file__).with_name("html_text.py")
_SECONDS = 30.0
_CACHE_SECONDS = 15 * 60.0
_MAX_CACHED_PAGES = 16
_MAX_CACHED_CHARACTERS = 500_000
_META_CHARSET = compile_on_first_use(rb"<meta[^>]{0,200}?charset=[\"']?([\w-]{1,40})", re.IGNORECASE)
_TEXT_MEDIA_TYPES = (
    "application/xml",
    "application/javascript",
    "application/x-yaml",
    "application/toml",
    "application/yaml",
)


class ConvertedWebPage(Struct, frozen=True, kw_only=True):
    url: str
    media_type: str
    text: str
    truncated: bool


class WebPageCache:
    """Cache of the last pages, by URL."""

    def __init__(self) -> None:
        self._pages: OrderedDict[str, tuple[float, ConvertedWebPage]] = OrderedDict()

    def find_page(self, url: str, clock: Clock) -> ConvertedWebPage | None:
        stored_at, page = self._pages.get(url, (0.0, None))
        return page if page is not None and clock.monotonic() - stored_at < _CACHE_SECONDS else None

    def store_page(self, url: str, page: ConvertedWebPage, clock: Clock) -> None:
        if len(page.text) > _MAX_CACHED_CHARACTERS:
            return
        self._pages[url] = (clock.monotonic(), page)
        self._pages.move_to_end(url)
        while len(self._pages) > _MAX_CACHED_PAGES:
            self._pages.popitem(last=False)


def build_web_tools(*, allow_private: bool = False) -> tuple[Tool, ...]:
    """Return the web tools; `allow_private` also allows pages of this machine and its network."""
    cache = WebPageCache()

    @builtin_tool(name="WebFetch", reads_only=True, deadline=_SECONDS + 15)
    async def web_fetch(
        url: str,
        context: ToolContext,
        prompt: str | None = None,
    ) -> ToolOutput:
        page = cache.find_page(url, context.clock)
        if page is None:
            try:
                async with context.clock.deadline(_SECONDS):
                    fetched = await fetch_web_page(url, allow_private=allow_private)
                    if isinstance(fetched, UnfollowedCrossHostRedirect):
                        return _format_cross_host_redirect(url, fetched)
                    page = await _convert_fetched_page(fetched, context)
            except TimeoutError:
                return create_tool_error_output(
                    format_tool_text("WebFetch", "timed_out", url=url, seconds=f"{_SECONDS:g}")
                )
            cache.store_page(url, page, context.clock)
        return _format_page_output(page, prompt, context)

    return (web_fetch,)


def _format_cross_host_redirect(url: str, redirect: UnfollowedCrossHostRedirect) -> ToolOutput:
    return ToolOutput(
        content=format_tool_text(
            "WebFetch", "redirect", url=url, status=redirect.status, target=redirect.target
        ),
        data={"redirect": redirect.target},
    )


async def _convert_fetched_page(fetched: FetchedWebPage, context: ToolContext) -> ConvertedWebPage:
    media_type = fetched.media_type
    if not media_type:
        media_type = "text/html" if fetched.body.lstrip()[:1] == b"<" else "text/plain"
    is_text = (
        media_type.startswith("text/")
        or media_type.endswith(("+json", "+xml", "/json"))
        or media_type in _TEXT_MEDIA_TYPES
    )
    is_wide_charset = (fetched.charset or "").lower().startswith(("utf-16", "utf-32"))
    if fetched.status < 400 and (not is_text or (b"\0" in fetched.body[:1024] and not is_wide_charset)):
        size = f"{fetched.size:,} bytes" if fetched.size is not None else "of unknown size"
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "not_text", url=fetched.url, media_type=media_type, size=size)
        )
    text = _decode_page_body(fetched, media_type)
    if media_type in ("text/html", "application/xhtml+xml"):
        text = await _convert_html_in_subprocess(text, fetched.url, context)
    elif media_type.endswith(("+json", "/json")):
        text = _indent_json(text)
    if fetched.status >= 400:
        raise WebPageFetchRefusedError(
            format_tool_text(
                "WebFetch",
                "error_status",
                url=fetched.url,
                status=f"{fetched.status} {fetched.reason}",
                text=text[:2000],
            ).strip()
        )
    return ConvertedWebPage(url=fetched.url, media_type=media_type, text=text, truncated=fetched.truncated)


def _decode_page_body(fetched: FetchedWebPage, media_type: str) -> str:
    charset = fetched.charset
    if charset is None and "html" in media_type and (meta := _META_CHARSET.search(fetched.body[:4096])):
        charset = meta[1].decode()
    try:
        return fetched.body.decode(charset or "utf-8", errors="replace")
    except (LookupError, ValueError):  # an unknown encoding, or one that is not for text
        return fetched.body.decode(errors="replace")


async def _convert_html_in_subprocess(html: str, url: str, context: ToolContext) -> str:
    try:
        status, text = await run_python_subprocess((str(_HTML_TEXT_SCRIPT), url), html, context, seconds=10)
    except ProcessError as error:
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "not_converted", url=url, error=error)
        ) from error
    if status != 0:
        raise WebPageFetchRefusedError(
            format_tool_text("WebFetch", "not_converted", url=url, error=text.strip()[-300:])
        )
    return text


def _indent_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _format_page_output(page: ConvertedWebPage, prompt: str | None, context: ToolContext) -> ToolOutput:
    boundary = context.ids.new_short_id()
    text = page.text
    notes = [format_tool_text("WebFetch", "partly_read", size=MAX_BODY_BYTES >> 20)] if page.truncated else []
    if len(text) > MAX_PAGE_CHARACTERS:
        text = text[:MAX_PAGE_CHARACTERS]
        try:
            path = context.results.save_result(f"{context.call_id}.txt", page.text.encode(errors="replace"))
            location = format_tool_text("WebFetch", "saved", path=path)
        except StateFileError as error:
            location = format_tool_text("WebFetch", "not_saved", error=error)
        notes.append(
            format_tool_text(
                "WebFetch",
                "shortened",
                shown=f"{MAX_PAGE_CHARACTERS:,}",
                total=f"{len(page.text):,}",
                location=location,
            )
        )
    intro = [format_tool_text("WebFetch", "wanted", prompt=prompt)] if prompt else []
    # The mark cannot be guessed, so a page cannot fake its own end.
    lines = [
        *intro,
        format_tool_text("WebFetch", "content", mark=boundary, url=page.url, media_type=page.media_type),
        *notes,
        f"--- page {boundary} ---",
        text or load_tool_text("WebFetch", "empty"),
        f"--- end of page {boundary} ---",
    ]
    return ToolOutput(content="\n".join(lines), data={"url": page.url, "characters": len(page.text)})
