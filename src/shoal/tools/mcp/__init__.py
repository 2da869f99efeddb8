"""Tools of MCP servers. Only `sdk_connection` and its imports use the SDK; they are imported on demand."""
