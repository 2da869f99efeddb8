"""Members of a team, in this process or another, from admission to shutdown."""
