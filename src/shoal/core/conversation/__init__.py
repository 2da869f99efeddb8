"""Messages, tools, model requests and transcript entries: the conversation of an agent."""
