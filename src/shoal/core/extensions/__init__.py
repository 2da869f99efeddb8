"""Extensions that people install: hooks, skills, plugins and MCP servers."""
