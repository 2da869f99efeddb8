"""Tools of MCP servers. `link` and what it imports alone know the SDK; they are imported when a server is."""
