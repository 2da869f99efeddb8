"""`shoal demo`: a team, or three agents, repair a small project before one's eyes, offline."""
