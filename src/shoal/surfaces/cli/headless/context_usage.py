"""Usage of the lead's context window by category, as reported to programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.agent.agent import BYTES_PER_TOKEN, weight

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.requests import ToolSchema


def context_usage(session: Session) -> dict[str, Any]:
    """Compute the usage: the total is the provider's last count plus an estimate; the parts are estimates."""
    agent = session.agent
    window = agent.model.card.window
    said = sum(weight(block) for message in agent.conversation.messages for block in message.content)
    of_servers = [schema for schema in agent.schemas if schema.name.startswith("mcp__")]
    own = [schema for schema in agent.schemas if schema not in of_servers]
    parts = {
        "System prompt": len(agent.system) // BYTES_PER_TOKEN,
        "System tools": sum(map(_tokens, own)),
        "MCP tools": sum(map(_tokens, of_servers)),
        "Messages": said,
        "Free space": max(0, window - agent.context_tokens),
    }
    return {
        "categories": [{"name": name, "tokens": tokens, "color": ""} for name, tokens in parts.items()],
        "totalTokens": agent.context_tokens,
        "maxTokens": window,
        "rawMaxTokens": window,
        "percentage": round(100 * agent.context_tokens / window, 1) if window else 0.0,
        "model": agent.model.card.id,
        "isAutoCompactEnabled": agent.bounds.compact_at < 1,
        "autoCompactThreshold": round(window * agent.bounds.compact_at),
        "memoryFiles": [],
        "mcpTools": [
            {
                "name": schema.name,
                "serverName": schema.name.split("__")[1],
                "tokens": _tokens(schema),
                "isLoaded": True,
            }
            for schema in of_servers
        ],
        "agents": [
            {"agentType": each.name, "source": each.source.kind, "tokens": len(each.description) // 4}
            for each in session.parts.definitions.all()
        ],
        "gridRows": [],
    }


def _tokens(schema: ToolSchema) -> int:
    return (len(schema.name) + len(schema.description) + len(str(schema.input_schema))) // BYTES_PER_TOKEN
