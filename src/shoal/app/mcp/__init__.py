"""MCP servers of a session: their tools, prompts and pushed messages."""
