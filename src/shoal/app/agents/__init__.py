"""Creates and supervises the agents of a session: spawn requests, agent factory, and member launch."""
