"""MCP server that gives other programs Shoal's teams."""
