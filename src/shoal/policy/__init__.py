"""Permission decisions about tool calls: rules, modes, shell commands and hooks."""
