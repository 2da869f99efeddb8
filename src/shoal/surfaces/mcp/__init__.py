"""Shoal's teams for other programs, as an MCP server."""
