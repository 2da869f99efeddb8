"""The MCP servers of a session, and what they offer and push."""
