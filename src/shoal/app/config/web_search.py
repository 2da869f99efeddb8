"""Chooses what answers the WebSearch tool: the provider, an MCP tool or a search service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from shoal.agent.agent_runner import AgentRunner
from shoal.agent.model_call import call_model
from shoal.app.model_notices import format_session_notice
from shoal.app.settings.settings import Settings
from shoal.core.budgets.usage import ModelCard
from shoal.core.conversation.messages import user_message
from shoal.core.conversation.model_requests import ModelRequest, WebSearchOptions
from shoal.core.conversation.tools import Tool, ToolContext, ToolOutput, create_tool_error_output
from shoal.core.errors import BudgetExhausted, ModelError
from shoal.core.extensions.mcp_servers import MCP_PREFIX
from shoal.core.ids import AgentId
from shoal.models.catalogue import select_openai_api
from shoal.models.providers import PROVIDERS
from shoal.tools.web_search_tool import WebSearchBackend, WebSearchQuery, build_web_search_tool
from shoal.wire.settings_codec import is_web_search_choice

PROVIDER = "provider"
_MAX_TOKENS = 4_096
_ANTHROPIC = "anthropic"
_OPENAI_PROVIDERS = ("openai", "openai-responses")


def create_web_search_tools(
    settings: Settings,
    card: ModelCard,
    find_agent: Callable[[AgentId], AgentRunner],
    wait_for_servers: Callable[[], Awaitable[None]],
) -> tuple[Tool, ...]:
    """Return the tool, or nothing if nothing can answer it.

    `wait_for_servers` returns when no MCP server is connecting.
    """
    choice = settings.own.web_search or (PROVIDER if _has_provider_search(settings, card) else "")
    backend: WebSearchBackend
    if choice == PROVIDER:
        backend = _ProviderSearch(find_agent, settings)
    elif choice.startswith(MCP_PREFIX):
        backend = _McpToolSearch(choice, find_agent, wait_for_servers)
    elif choice.startswith(("https://", "http://")):
        from shoal.tools.search_service import HttpSearchService

        backend = HttpSearchService(choice, settings.environ, proxy=settings.proxies.find_proxy(choice))
    else:
        # The start reports a setting that is none of these. Another service must not get the searches.
        return ()
    return (build_web_search_tool(backend),)


def can_search(settings: Settings, card: ModelCard) -> bool:
    """Return True if a session with this model has the tool."""
    choice = settings.own.web_search
    return is_web_search_choice(choice) if choice else _has_provider_search(settings, card)


def _has_provider_search(settings: Settings, card: ModelCard) -> bool:
    """Return True if the provider itself answers, which a compatible server may not."""
    url = _get_base_url(settings, card)
    is_own = f".{urlsplit(url).hostname}".endswith((".anthropic.com", ".openai.com"))
    return is_own and _can_request_search(settings, card)


def _can_request_search(settings: Settings, card: ModelCard) -> bool:
    """Return True if requests to the model can ask for a search: Chat Completions cannot."""
    if card.provider not in (_ANTHROPIC, *_OPENAI_PROVIDERS):
        return False
    api = select_openai_api(card.provider, card, _get_base_url(settings, card))
    return (api or PROVIDERS[card.provider].api) != "chat"


def _get_base_url(settings: Settings, card: ModelCard) -> str:
    access, provider = settings.access, PROVIDERS.get(card.provider)
    given = access.anthropic_base_url if card.provider == _ANTHROPIC else access.openai_base_url
    return given or ("" if provider is None else provider.base_url)


class _ProviderSearch:
    """Asks the agent's own model, whose provider searches; the request counts in its budget."""

    def __init__(self, find_agent: Callable[[AgentId], AgentRunner], settings: Settings) -> None:
        self._find_agent = find_agent
        self._settings = settings

    async def search(self, query: WebSearchQuery, context: ToolContext) -> ToolOutput:
        agent = self._find_agent(AgentId(context.agent.agent))
        card = agent.current_model.card
        if not _can_request_search(self._settings, card):
            return create_tool_error_output(format_session_notice("search_unsupported", model=card.id))
        if query.blocked_domains and card.provider in _OPENAI_PROVIDERS:
            return create_tool_error_output(format_session_notice("search_blocked_domains"))
        request = ModelRequest(
            system=format_session_notice("search_system"),
            messages=[user_message(format_session_notice("search_request", query=query.text))],
            max_tokens=_MAX_TOKENS,
            web_search=WebSearchOptions(
                allowed_domains=query.allowed_domains, blocked_domains=query.blocked_domains
            ),
        )
        try:
            reply, _ = await call_model(agent, request, emits_stream=False)
        except (BudgetExhausted, ModelError) as error:
            return create_tool_error_output(format_session_notice("search_failed", error=error))
        return ToolOutput(content=reply.message.text)


class _McpToolSearch:
    """Passes the query to a tool of an MCP server."""

    def __init__(
        self,
        name: str,
        find_agent: Callable[[AgentId], AgentRunner],
        wait_for_servers: Callable[[], Awaitable[None]],
    ) -> None:
        self._name = name
        self._find_agent = find_agent
        self._wait_for_servers = wait_for_servers

    async def search(self, query: WebSearchQuery, context: ToolContext) -> ToolOutput:
        if query.is_restricted:
            return create_tool_error_output(format_session_notice("search_domains", tool=self._name))
        agent = self._find_agent(AgentId(context.agent.agent))
        tools = agent.environment.session_tools
        if self._name not in tools:
            await self._wait_for_servers()
        if (found := tools.get(self._name)) is None:
            return create_tool_error_output(format_session_notice("search_tool_missing", tool=self._name))
        return await found.run({"query": query.text}, context)
