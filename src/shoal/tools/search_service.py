"""Search services with an HTTP interface: SearXNG, Brave and Tavily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from shoal.core.conversation.tools import ToolContext, ToolOutput, create_tool_error_output
from shoal.core.tls_contexts import get_tls_context, read_tls_variables
from shoal.tools.tool_texts import format_tool_text
from shoal.tools.web_search_tool import WebSearchQuery

if TYPE_CHECKING:
    import httpx

_SECONDS = 30.0
_MAX_RESULTS = 10
_MAX_SNIPPET = 500
_MAX_BYTES = 2_000_000


class HttpSearchService:
    """Search service at an address.

    `variables` are those of the session: they may hold its key, and name certificates.
    """

    def __init__(self, url: str, variables: Mapping[str, str], *, proxy: str | None = None) -> None:
        self._url = url
        self._host = urlsplit(url).hostname or ""
        self._variables = variables
        self._proxy = proxy

    async def search(self, query: WebSearchQuery, context: ToolContext) -> ToolOutput:
        import httpx

        try:
            async with context.clock.deadline(_SECONDS), self._open_client() as client:
                response = await client.send(self._build_request(client, query))
        except TimeoutError:
            return create_tool_error_output(
                format_tool_text("WebSearch", "slow", host=self._host, seconds=f"{_SECONDS:g}")
            )
        except (httpx.HTTPError, OSError, ValueError) as error:
            return create_tool_error_output(
                format_tool_text(
                    "WebSearch", "failed", host=self._host, error=str(error) or type(error).__name__
                )
            )
        if response.status_code != 200 or len(response.content) > _MAX_BYTES:
            return create_tool_error_output(
                format_tool_text("WebSearch", "refused", host=self._host, status=response.status_code)
            )
        try:
            rows = _find_results(response.json())
        except ValueError:
            return create_tool_error_output(format_tool_text("WebSearch", "not_json", host=self._host))
        permitted = [row for row in rows if query.permits_url(row["url"])][:_MAX_RESULTS]
        return ToolOutput(
            content="\n".join(_format_result(row) for row in permitted),
            data={"results": [{"title": row["title"], "url": row["url"]} for row in permitted]},
        )

    def _open_client(self) -> httpx.AsyncClient:
        import httpx

        return httpx.AsyncClient(
            follow_redirects=False,
            trust_env=False,
            proxy=self._proxy,
            verify=get_tls_context(read_tls_variables(self._variables)),
        )

    def _build_request(self, client: Any, query: WebSearchQuery) -> Any:
        if self._host.endswith("tavily.com"):
            fields: dict[str, Any] = {"query": query.text, "max_results": _MAX_RESULTS}
            fields |= {"include_domains": list(query.allowed_domains)} if query.allowed_domains else {}
            fields |= {"exclude_domains": list(query.blocked_domains)} if query.blocked_domains else {}
            headers = {"Authorization": f"Bearer {self._variables.get('TAVILY_API_KEY', '')}"}
            return client.build_request("POST", self._url, json=fields, headers=headers)
        headers = {"Accept": "application/json"}
        if self._host.endswith("brave.com"):
            headers["X-Subscription-Token"] = self._variables.get("BRAVE_API_KEY", "")
            return client.build_request("GET", self._url, params={"q": query.text}, headers=headers)
        parameters = {"q": query.text, "format": "json"}
        return client.build_request("GET", self._url, params=parameters, headers=headers)


def _find_results(raw: Any) -> list[dict[str, str]]:
    """Return the results in an answer of any of the services."""
    answer = raw if isinstance(raw, dict) else {}
    web = answer.get("web")
    rows = (web if isinstance(web, dict) else answer).get("results")
    return [
        {
            "title": str(row.get("title") or ""),
            "url": str(row["url"]),
            "text": str(row.get("content") or row.get("description") or ""),
        }
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict) and isinstance(row.get("url"), str)
    ]


def _format_result(row: Mapping[str, str]) -> str:
    snippet = " ".join(row["text"].split())[:_MAX_SNIPPET]
    return f"- {row['title']}\n  {row['url']}\n  {snippet}".rstrip()
