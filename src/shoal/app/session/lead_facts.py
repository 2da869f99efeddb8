"""Facts about a session's lead agent, for the surfaces that show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shoal.agent.agent_runner import BYTES_PER_TOKEN, estimate_block_tokens

if TYPE_CHECKING:
    from shoal.app.session.session import Session
    from shoal.core.conversation.model_requests import ToolSchema


def list_lead_tools(session: Session) -> Iterable[str]:
    return session.agent.tools


def compute_context_percent(session: Session) -> int | None:
    """Return how full the context window is; None if that is not known."""
    agent = session.agent
    window = agent.current_model.card.window
    return 100 * agent.state.context_tokens // window if window and agent.state.context_tokens else None


def compute_context_usage(session: Session) -> dict[str, Any]:
    """Compute the usage: the total is the provider's last count plus an estimate; the parts are estimates."""
    agent = session.agent
    window = agent.current_model.card.window
    message_tokens = sum(
        estimate_block_tokens(block) for message in agent.conversation.messages for block in message.content
    )
    mcp_schemas = [schema for schema in agent.schemas.sent if schema.name.startswith("mcp__")]
    own_schemas = [schema for schema in agent.schemas.sent if schema not in mcp_schemas]
    parts = {
        "System prompt": len(agent.system) // BYTES_PER_TOKEN,
        "System tools": sum(map(_estimate_schema_tokens, own_schemas)),
        "MCP tools": sum(map(_estimate_schema_tokens, mcp_schemas)),
        "Messages": message_tokens,
        "Free space": max(0, window - agent.state.context_tokens),
    }
    return {
        "categories": [{"name": name, "tokens": tokens, "color": ""} for name, tokens in parts.items()],
        "totalTokens": agent.state.context_tokens,
        "maxTokens": window,
        "rawMaxTokens": window,
        "percentage": round(100 * agent.state.context_tokens / window, 1) if window else 0.0,
        "model": agent.current_model.card.id,
        "isAutoCompactEnabled": agent.limits.compact_at < 1,
        "autoCompactThreshold": round(window * agent.limits.compact_at),
        "memoryFiles": [],
        "mcpTools": [
            {
                "name": schema.name,
                "serverName": schema.name.split("__")[1],
                "tokens": _estimate_schema_tokens(schema),
                "isLoaded": True,
            }
            for schema in mcp_schemas
        ],
        "agents": [
            {"agentType": each.name, "source": each.source.kind, "tokens": len(each.description) // 4}
            for each in session.config.definitions.all()
        ],
        "gridRows": [],
    }


def _estimate_schema_tokens(schema: ToolSchema) -> int:
    return (len(schema.name) + len(schema.description) + len(str(schema.input_schema))) // BYTES_PER_TOKEN
